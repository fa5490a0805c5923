"""`gpuctl extend`: what it prints and what it refuses. The machines' part is in tests/e2e."""

import asyncio
import json
from collections.abc import Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest
from botocore.exceptions import ClientError
from typer.testing import CliRunner, Result

import provision.lease
from cli.main import app
from config.cluster.cluster_file import Budget, Lifetime
from config.errors import Interrupted, NodeError
from config.target import Target
from nodes.answers import Completed, Unreachable
from nodes.inventory import Node
from provision.billing.cost import access_prices
from provision.setup.lease.units import SECONDS_LEFT, request_end, set_end
from provision.state.record import Lease
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.cli.conftest import remember
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory

HOUR = "3600\n"


class Machines(WithoutSsh):
    """The cluster's machines: what each answers when it is asked for its end, or given one."""

    def __init__(self) -> None:
        self.left: dict[str, Any] = {}
        self.moved: dict[str, Any] = {}
        self.ends: dict[str, str] = {}
        self.is_interrupted = False
        self.tags: dict[str, datetime] = {}
        self.may_tag = True

    def tag(self, call: ApiCall) -> Any:
        """Answer a request to AWS."""
        assert call.operation == "CreateTags"
        if not self.may_tag:
            raise ClientError({"Error": {"Code": "UnauthorizedOperation"}}, call.operation)
        (tag,) = call.request["Tags"]
        end = datetime.fromisoformat(tag["Value"])
        self.tags |= dict.fromkeys(call.request["Resources"], end)
        return {}

    async def run(self, node: Node, _: str, *, stdin: str, timeout: float) -> Completed:  # noqa: ASYNC109
        return self._answer(node.name, stdin)

    async def run_on_bastion(self, _: str, __: float, stdin: str) -> Completed:
        return self._answer("bastion", stdin)

    def _answer(self, name: str, script: str) -> Completed:
        if script == SECONDS_LEFT:
            answer = self.left.get(name, Completed(0, HOUR, ""))
        else:
            self.ends[name] = script
            if self.is_interrupted:
                raise asyncio.CancelledError  # as asyncio.run answers Ctrl-C
            answer = self.moved.get(name, Completed(0, "", ""))
        if isinstance(answer, Completed):
            return answer
        raise answer


@pytest.fixture
def machines(
    remembered: Target,
    signed_in: None,
    reach_nodes: Callable[[Connect], None],
    answer_calls: Callable[[Answer], None],
) -> Machines:
    found = Machines()
    remember(make_inventory(2), remembered)
    change(remembered, lifetime=Lifetime.model_validate({"max": "8h"}))
    reach_nodes(lambda _: found)
    answer_calls(found.tag)
    return found


def change(target: Target, **fields: object) -> None:
    """Change the file of the cluster in its record."""
    known = ClusterStore(target).record("demo")
    assert known is not None
    cluster = known.resolved.cluster.model_copy(update=fields)
    resolved = known.resolved.model_copy(update={"cluster": cluster})
    ClusterStore(target).write(known.model_copy(update={"resolved": resolved}))


def extend(*words: str) -> Result:
    return CliRunner().invoke(app, ["--quiet", "extend", "demo", *words])


def test_ctrl_c_while_machines_get_their_end_says_how_they_get_the_same(
    machines: Machines, remembered: Target
) -> None:
    machines.is_interrupted = True
    error = extend("2h").exception
    assert isinstance(error, Interrupted)
    assert str(error) == (
        "interrupted: some machines of demo may have the new end, others the old;"
        " `gpuctl extend demo 1m` gives all of them one end"
    )
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    assert known.lease is None


def test_all_machines_get_the_same_end(machines: Machines, remembered: Target) -> None:
    machines.left["node1"] = Completed(0, "3700\n", "")
    before = datetime.now(UTC)
    done = extend("2h", "--json")
    document = json.loads(done.stdout)
    assert machines.ends == {
        "node0": set_end(10900),
        "node1": set_end(10900),
        "bastion": request_end(10900),
    }
    assert document["machines"] == ["node0", "node1", "bastion"]
    end = datetime.fromisoformat(document["end"])
    assert 10890 < (end - before).total_seconds() < 11000
    assert (end - datetime.fromisoformat(document["before"])).total_seconds() == 7200
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    assert known.lease is not None
    assert known.lease.end.replace(microsecond=0) == end
    assert known.now("ready").lease == known.lease
    assert machines.tags == dict.fromkeys(("i-1", "i-2", "i-0"), end)


def test_a_tag_that_cannot_be_written_moves_no_timer(machines: Machines) -> None:
    machines.may_tag = False
    assert str(extend("2h").exception).startswith("AWS refused CreateTags: UnauthorizedOperation")
    assert machines.ends == {}


def test_the_text(machines: Machines, remembered: Target) -> None:
    text = extend("2h").stdout
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    assert isinstance(known.lease, Lease)
    assert text.startswith(f"Cluster demo ends at {known.lease.end:%Y-%m-%d %H:%M:%S} UTC, instead")
    assert text.endswith(": bastion,node[0-1] power off then.\n")


@pytest.mark.parametrize("word", ["2", "2hours", "0h"])
def test_a_wrong_duration(machines: Machines, word: str) -> None:
    assert str(extend(word).exception) == (
        f"DURATION is '{word}': it must be a whole number (at most 6 digits) and a unit: s, m, h or"
        " d (30m, 8h); write 30m or 2h"
    )
    assert machines.ends == {}


def test_a_cluster_without_a_lease(machines: Machines, remembered: Target) -> None:
    change(remembered, lifetime=None)
    assert str(extend("2h").exception) == (
        "cluster demo has no lease: it does not end by itself; set lifetime.max in its file; the"
        " next `gpuctl up` then replaces its nodes"
    )
    assert machines.ends == {}


def test_an_end_that_is_too_far_away(machines: Machines) -> None:
    assert str(extend("366d").exception) == (
        "cluster demo would end in 366 days, at most 366 are allowed; extend it by less"
    )
    assert machines.ends == {}


def test_a_budget_counts_from_the_creation(machines: Machines, remembered: Target) -> None:
    change(remembered, budget=Budget(max_total=100))
    known = ClusterStore(remembered).known_record("demo")
    bastion = sum(price or 0 for _, price in access_prices(known.resolved))
    kind = known.resolved.instance_type.model_copy(update={"price_usd_h": (30 - bastion) / 2})
    costs_30 = known.resolved.model_copy(update={"instance_type": kind})
    new = {"created": datetime.now(UTC), "resolved": costs_30}
    ClusterStore(remembered).write(known.model_copy(update=new))
    assert str(extend("3h").exception) == (
        "budget.max_total: cluster demo would cost $120.00 until its new end, at most $100.00 is"
        " allowed; extend it by less, or allow more in its file and repeat `gpuctl up`"
    )
    assert machines.ends == {}
    assert extend("2h").exit_code == 0


def test_nothing_changes_if_a_machine_does_not_answer(
    machines: Machines, remembered: Target
) -> None:
    machines.left["node1"] = Unreachable("node1 (10.0.0.2) did not answer within 60 s", "")
    assert str(extend("2h").exception) == (
        "node1: no answer about the end: node1 (10.0.0.2) did not answer within 60 s; no machine"
        " was changed"
    )
    machines.left["node1"] = Completed(0, "none\n", "")
    assert str(extend("2h").exception) == (
        "node1: no timer that ends a lease; no machine was changed; repeat `up`"
    )
    assert machines.ends == {}
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    assert known.lease is None


def test_a_machine_that_keeps_its_end_is_named(machines: Machines, remembered: Target) -> None:
    machines.moved["node0"] = Completed(1, "", "sh: disk full\n")
    assert str(extend("2h").exception) == (
        "node0: its end did not move: sh: disk full; repeat `gpuctl extend demo 1m` for all"
    )
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    assert known.lease is None


def join(target: Target, *new: str) -> Lease | None:
    provision.lease.join(make_inventory(2), new, target)
    return ClusterStore(target).known_record("demo").lease


def test_a_node_that_is_made_again_ends_with_the_others(
    machines: Machines, remembered: Target
) -> None:
    machines.left = {
        "node0": Completed(0, "500\n", ""),
        "node1": Completed(0, "28800\n", ""),
        "bastion": Completed(0, "400\n", ""),
    }
    before = datetime.now(UTC)
    lease = join(remembered, "node1")
    assert machines.ends == {"node1": set_end(500)}
    assert list(machines.tags) == ["i-2"]
    assert 499 < (machines.tags["i-2"] - before).total_seconds() < 560
    assert lease is not None, "the record has the end of the machine that ends first: the bastion"
    assert machines.tags["i-2"] - lease.end.replace(microsecond=0) == timedelta(seconds=100)
    assert before < lease.moved < datetime.now(UTC)


def test_the_tags_get_the_ends_that_machines_report(machines: Machines, remembered: Target) -> None:
    """node1 does not answer: its tag stays."""
    machines.left["node1"] = Unreachable("node1 (10.0.0.2) did not answer within 60 s", "")
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    before = datetime.now(UTC)
    machines.left["bastion"] = Completed(0, "3000\n", "")
    noted = provision.lease.note_ends(make_inventory(2), known, remembered)
    assert machines.tags.keys() == {"i-1", "i-0"}
    end = machines.tags["i-1"]
    assert (end.second, end.microsecond) == (0, 0)
    assert 3600 <= (end - before).total_seconds() < 3670
    assert noted.lease is not None
    assert noted.lease.end == machines.tags["i-0"] == end - timedelta(seconds=600)


def test_a_lease_stays_recorded_if_no_machine_answers(
    machines: Machines, remembered: Target
) -> None:
    """Nodes that run keep their timers, also if the cluster's file has no lease any more."""
    now = datetime.now(UTC)
    lease = Lease(end=now + timedelta(hours=2), moved=now)
    known = ClusterStore(remembered).known_record("demo").model_copy(update={"lease": lease})
    silent = Unreachable("did not answer within 60 s", "")
    machines.left = dict.fromkeys(("node0", "node1", "bastion"), silent)
    assert provision.lease.note_ends(make_inventory(2), known, remembered) == known
    change(remembered, lifetime=None)
    machines.left.clear()
    known = ClusterStore(remembered).known_record("demo").model_copy(update={"lease": lease})
    noted = provision.lease.note_ends(make_inventory(2), known, remembered)
    assert noted.lease is not None
    assert noted.lease.end == machines.tags["i-1"] != lease.end


def test_machines_without_a_lease_are_not_asked(machines: Machines, remembered: Target) -> None:
    change(remembered, lifetime=None)
    known = ClusterStore(remembered).known_record("demo")
    assert provision.lease.note_ends(make_inventory(2), known, remembered) == known
    assert machines.tags == {}


def test_a_new_node_joins_no_lease_where_there_is_none(
    machines: Machines, remembered: Target
) -> None:
    change(remembered, lifetime=None)
    join(remembered, "node1")
    assert machines.ends == {}


def test_a_node_that_does_not_take_the_others_end_is_named(
    machines: Machines, remembered: Target
) -> None:
    machines.moved["node1"] = Completed(1, "", "no systemd")
    with pytest.raises(NodeError) as caught:
        join(remembered, "node1")
    assert str(caught.value) == (
        "node1: its end is not that of the others: no systemd; `gpuctl extend` sets one end"
    )
