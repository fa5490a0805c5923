"""A client makes the lost nodes of a run again: when, how often, and what it reports."""

import asyncio
import contextlib
from collections.abc import Collection, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from cli.output import Output
from config.errors import CloudError, InputError
from config.target import Target
from engine.contract.head_events import AttemptStarted, RunNode, WaitingForNodes
from engine.session.head import Head
from nodes.inventory import Inventory
from operations.run_healing import Healing
from operations.teardown import removable
from provision.state.store import ClusterStore
from tests.engine.conftest import make_inventory

TARGET = Target("aws", "us-east-1", Path("/nonexistent"))
WAITS = WaitingForNodes(time=0, nodes=("node1",), seconds=60)
THERE = make_inventory(2)
HEALED = ("job-000001", {"node1": "10.0.0.9"})
QUEUED_HEALED = ("queued-000002", {"node1": "10.0.0.9"})


class Cloud:
    """AWS and the run's head, as the client sees them."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.is_gone, self.only_adds = True, True
        self.refusals: list[CloudError] = []
        self.checks_without_key = 0
        self.answers: list[str] = []
        self.calls: list[Any] = []
        record = SimpleNamespace(resolved=SimpleNamespace(cluster="the cluster file"))
        self.made = ["up", ("join", "node1")]

        async def report(head: Head, addresses: dict[str, str]) -> None:
            self.calls.append((head._run_id, addresses))

        for name, value in {
            "provision.state.store.ClusterStore.record": lambda *_: record,
            "provision.state.store.ClusterStore.inventory": lambda *_: THERE,
            "provision.healing.plan": self._plan,
            "provision.healing.up": self._up,
            "provision.healing.join": self._join,
            "provision.healing.check_new_machines": self._check_key,
            "engine.session.head.Head.report_healed": report,
            "engine.session.head_locks.hold": self._hold,
            "operations.run_healing._new_nodes": lambda *_: (
                {} if self.is_gone else {"node1": "10.0.0.9"}
            ),
        }.items():
            monkeypatch.setattr(name, value)
        self.first_pause_s = 0.01

    def _new_nodes(self, *_: object) -> dict[str, str]:
        return {} if self.is_gone else {"node1": "10.0.0.9"}

    @contextlib.contextmanager
    def _hold(self, run_id: str, _: object, what: str) -> Iterator[str]:
        assert (run_id, what) == ("job-000001", "healing")
        yield self.answers.pop(0) if self.answers else "held"

    def _plan(self, cluster: str, *_: Any) -> Any:
        assert cluster == "the cluster file"
        made = {"is_empty": not self.is_gone, "new_machines": ("node1",)}
        plan = SimpleNamespace(only_adds=self.only_adds, **made)
        return SimpleNamespace(plan=plan, resolved=SimpleNamespace(bastion_user_data=""))

    def _check_key(self, *_: Any) -> None:
        if self.checks_without_key:
            self.checks_without_key -= 1
            self.is_gone = self.checks_without_key > 0  # then another client has made the machine
            raise InputError("the key is not on this machine", "run it there")

    def _up(self, *_: Any) -> Inventory:
        if self.refusals:
            raise self.refusals.pop()
        self.calls.append("up")
        self.is_gone = False
        return THERE

    def _join(self, _: object, names: Collection[str], __: object) -> None:
        self.calls.append(("join", *names))

    def heal(self, *events: Any) -> None:
        """Let a client see the events, and wait until it has nothing to do any more."""
        here: Any = SimpleNamespace(cluster_store=lambda _: ClusterStore(TARGET))

        def prepare(_: object, names: Collection[str]) -> list[str]:
            self.calls.append(("prepare", *names))
            return ["job-000001", "queued-000002"]

        pauses = (self.first_pause_s, 0.01)
        client = Healing(here, "job-000001", THERE, Output().progress(), prepare, *pauses)
        for event in events:
            client.see(event)
        for thread in client._threads:
            thread.join()


def test_a_machine_that_is_gone_is_made_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.heal(WAITS)
    assert cloud.calls == [*cloud.made, ("prepare", "node1"), HEALED, QUEUED_HEALED]
    printed = "".join(capsys.readouterr())
    assert "-- node1: gpuctl makes the lost machines again\n" in printed
    assert "-- node1 ready again after 0s\n" in printed


def test_a_machine_that_another_client_made_is_reported(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    cloud.is_gone = False
    cloud.heal(WAITS)
    assert cloud.calls == [("prepare", "node1"), HEALED, QUEUED_HEALED]


def test_a_refusal_is_printed_once_and_tried_again(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.refusals = [CloudError("no capacity", "wait") for _ in range(2)]
    cloud.heal(WAITS)
    assert cloud.calls[0] == "up"
    assert "".join(capsys.readouterr()).count("node1 cannot be made again: no capacity") == 1


def test_a_client_without_the_clusters_key_waits_for_one_that_has_it(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.checks_without_key = 3
    cloud.heal(WAITS)
    assert cloud.calls == [("prepare", "node1"), HEALED, QUEUED_HEALED]
    printed = "".join(capsys.readouterr())
    assert printed.count("node1 cannot be made again: the key is not on this machine") == 1
    assert "makes the lost machines again" not in printed


def test_nothing_else_of_the_cluster_is_changed(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.only_adds = False
    cloud.heal(WAITS)
    assert cloud.calls == []
    assert "cluster demo differs from its record" in "".join(capsys.readouterr())


def test_a_wait_that_is_over_makes_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    cloud.first_pause_s = 60
    cloud.heal(WAITS, AttemptStarted(time=0, number=2))
    assert cloud.calls == []


def test_the_end_of_the_run_waits_for_what_is_being_made(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    here: Any = SimpleNamespace(cluster_store=lambda _: ClusterStore(TARGET))
    client = Healing(
        here, "job-000001", THERE, Output().progress(), lambda *_: ["job-000001"], 0.01
    )

    async def run() -> Any:
        client.see(WAITS)
        return "result"

    assert asyncio.run(client.during(run())) == "result"  # type: ignore[comparison-overlap]
    assert not any(thread.is_alive() for thread in client._threads)
    assert cloud.calls in ([], [*cloud.made, HEALED])


def test_one_client_at_a_time_makes_nodes(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    cloud.answers = ["taken", "taken", "held"]
    cloud.heal(WAITS)
    assert cloud.calls == [*cloud.made, ("prepare", "node1"), HEALED, QUEUED_HEALED]


def test_nothing_is_made_while_somebody_removes_the_cluster(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.answers = ["removes", "removes", "held"]  # the removal failed
    cloud.heal(WAITS)
    assert cloud.calls == [*cloud.made, ("prepare", "node1"), HEALED, QUEUED_HEALED]
    said = "node1 cannot be made again: another gpuctl removes cluster demo\n"
    assert "".join(capsys.readouterr()).count(said) == 1


def test_the_end_of_a_run_waits_for_a_client_that_makes_nodes(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    answers = ["heals", "heals", "held"]

    @contextlib.contextmanager
    def hold(*_: object) -> Iterator[str]:
        yield answers.pop(0)

    monkeypatch.setattr("engine.session.head_locks.hold", hold)
    monkeypatch.setattr("operations.teardown.is_kept_by_others", lambda *_: False)
    monkeypatch.setattr("operations.teardown.is_removed", lambda *_: False)
    with removable(SimpleNamespace(), "job-000001", THERE, Output().progress()) as may_remove:  # type: ignore[arg-type]
        assert (may_remove, answers) == (True, [])
    said = "-- another gpuctl makes nodes of demo again: waiting for it\n"
    assert "".join(capsys.readouterr()) == said


def test_a_node_that_a_run_goes_on_without_is_made_for_a_later_attempt(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = Cloud(monkeypatch)
    node = RunNode(rank=0, name="node0", private_ip="10.0.0.1", role="master")
    cloud.heal(WAITS, AttemptStarted(time=0, number=2, nodes=(node,)))
    assert cloud.calls[0] == "up"
