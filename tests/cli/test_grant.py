"""`gpuctl grant` and `gpuctl revoke`: what they print, record and refuse.

What machines do is in tests/provision/test_access.py and tests/e2e/pair/test_jobs.py.
"""

import asyncio
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner, Result

import provision.access
from cli.main import app
from config.errors import InputError, Interrupted, NodeError
from config.target import Target
from nodes.answers import Completed, Unreachable
from nodes.inventory import Bastion, Node
from nodes.keys import ensure_key, generate_pair, parse_public_key
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory

OWN = generate_pair("gpuctl demo")[1]
ANN = generate_pair("ann@laptop")[1]
PRINT = parse_public_key(ANN, "").fingerprint


class Machines(WithoutSsh):
    """The cluster's machines: what each answers, and the scripts that they got."""

    def __init__(self) -> None:
        self.answers: dict[str, Any] = {}
        self.scripts: list[str] = []
        self.is_interrupted = False

    async def run(self, node: Node, _: str, *, stdin: str, timeout: float) -> Completed:  # noqa: ASYNC109
        return self._answer(node.name, stdin)

    async def run_on_bastion(self, _: str, __: float, stdin: str) -> Completed:
        return self._answer("bastion", stdin)

    def _answer(self, name: str, script: str) -> Completed:
        self.scripts.append(script)
        if self.is_interrupted:
            raise asyncio.CancelledError  # as asyncio.run answers Ctrl-C
        answer = self.answers.get(name, Completed(0, "1\n", ""))
        if isinstance(answer, Completed):
            return answer
        raise answer


@pytest.fixture
def machines(remembered: Target, reach_nodes: Callable[[Connect], None]) -> Machines:
    found = Machines()
    bastion = Bastion(instance_id="i-b", address="192.0.2.1")
    remember(make_inventory(2).model_copy(update={"bastion": bastion}), remembered)
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    resolved = known.resolved.model_copy(update={"public_key": OWN})
    ClusterStore(remembered).write(known.model_copy(update={"resolved": resolved}))
    reach_nodes(lambda _: found)
    return found


def call(*words: str) -> Result:
    return CliRunner().invoke(app, ["--quiet", *words])


def refusal(*words: str) -> str:
    error = call(*words).exception
    assert isinstance(error, Exception)
    assert getattr(error, "exit_code", None) == 2, error
    return str(error)


def grants(target: Target) -> list[tuple[str, bool, tuple[str, ...]]]:
    known = ClusterStore(target).record("demo")
    assert known is not None
    return [(one.name, one.is_revoked, one.open) for one in known.grants]


def test_a_key_is_granted_listed_and_revoked(machines: Machines, remembered: Target) -> None:
    assert call("grant", "demo", ANN).stdout == (
        f"ann@laptop ({PRINT}) has access to demo: bastion,node[0-1]\n"
    )
    assert grants(remembered) == [("ann@laptop", False, ())]
    listed = json.loads(call("grant", "demo", "--json").stdout)
    own, ann = listed["keys"]
    assert (own["name"], own["own"], own["key"]) == (
        "gpuctl demo",
        True,
        OWN.rpartition(" gpuctl")[0],
    )
    assert ann.pop("since")
    assert ann == {
        "name": "ann@laptop",
        "fingerprint": PRINT,
        "key": ANN.rpartition(" ")[0],
        "own": False,
        "revoked": False,
        "unconfirmed": [],
    }
    assert call("revoke", "demo", "ann@laptop").stdout == (
        f"ann@laptop ({PRINT}) has no access to demo: bastion,node[0-1]; 3 open connections ended\n"
    )
    assert grants(remembered) == []
    assert call("grant", "demo").stdout.splitlines()[1:] == [
        "`gpuctl grant demo KEY.pub` gives access"
    ]


def test_machines_out_of_reach_are_named_and_the_key_is_not_called_granted(
    machines: Machines, remembered: Target
) -> None:
    machines.answers["node1"] = Unreachable("node1 (10.0.0.2) did not answer within 60 s", "")
    error = call("grant", "demo", ANN).exception
    assert isinstance(error, NodeError)
    assert str(error) == (
        "node1: ann@laptop has no access there: node1 (10.0.0.2) did not answer within 60 s;"
        f" repeat `gpuctl grant demo {PRINT}`; bastion,node0 done"
    )
    assert grants(remembered) == [("ann@laptop", False, ("node1",))]
    assert call("grant", "demo").stdout.endswith(" UTC, not confirmed by node1\n")
    machines.answers.clear()
    assert call("grant", "demo", PRINT).exit_code == 0
    assert grants(remembered) == [("ann@laptop", False, ())]


def test_machines_that_do_not_show_their_connections_are_named(machines: Machines) -> None:
    call("grant", "demo", ANN)
    machines.answers["bastion"] = Completed(0, "0 incomplete\n", "")
    done = call("revoke", "demo", "ann@laptop", "--json")
    assert json.loads(done.stdout)["unchecked"] == ["bastion"]
    assert done.stderr == (
        "gpuctl: warning: bastion: connections that are open with the key may stay, because gpuctl"
        " cannot read sshd's log there; a reboot of the machine ends them\n"
    )


def test_ctrl_c_leaves_a_grant_that_no_machine_has_confirmed(
    machines: Machines, remembered: Target
) -> None:
    machines.is_interrupted = True
    error = call("grant", "demo", ANN).exception
    assert isinstance(error, Interrupted)
    assert str(error) == (
        "interrupted: not all machines of demo have confirmed the change;"
        " repeat it; `gpuctl grant demo` shows which ones have not"
    )
    assert grants(remembered) == [("ann@laptop", False, ("node0", "node1", "bastion"))]


def test_a_revoked_key_stays_listed_until_every_machine_has_lost_it(
    machines: Machines, remembered: Target
) -> None:
    call("grant", "demo", ANN)
    machines.answers["node0"] = Completed(1, "", "sh: disk full\n")
    assert str(call("revoke", "demo", "ann@laptop").exception) == (
        "node0: ann@laptop may still have access there: sh: disk full;"
        f" repeat `gpuctl revoke demo {PRINT}`; bastion,node1 done"
    )
    assert grants(remembered) == [("ann@laptop", True, ("node0",))]
    assert call("grant", "demo").stdout.endswith("  revoked, not confirmed by node0\n")
    # `up` repeats it on the machines that it made, and no new one gets the key.
    machines.answers.clear()
    store = ClusterStore(remembered)
    known, there = store.known_record("demo"), store.inventory("demo")
    provision.access.install_grants(there, known, store)
    assert "granted=''\n" in machines.scripts[-1]
    assert grants(remembered) == []


def test_up_fails_if_a_new_machine_has_not_got_the_keys(
    machines: Machines, remembered: Target
) -> None:
    call("grant", "demo", ANN)
    machines.answers["node1"] = Completed(1, "", "sh: disk full\n")
    store = ClusterStore(remembered)
    known, there = store.known_record("demo"), store.inventory("demo")
    with pytest.raises(NodeError) as refused:
        provision.access.install_grants(there, known, store)
    assert str(refused.value) == (
        "node1: the keys of colleagues are not as granted: sh: disk full;"
        " see `gpuctl grant demo`, and repeat `gpuctl up`"
    )
    assert grants(remembered) == [("ann@laptop", False, ("node1",))]


def test_a_name_of_another_cluster_grants_its_keys(machines: Machines, remembered: Target) -> None:
    call("grant", "demo", ANN)
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    cluster = known.resolved.cluster.model_copy(update={"name": "older"})
    resolved = known.resolved.model_copy(update={"cluster": cluster})
    ClusterStore(remembered).write(known.model_copy(update={"name": "older", "resolved": resolved}))
    ClusterStore(remembered).write(known.model_copy(update={"grants": ()}))
    assert call("grant", "demo", "ann@laptop").exit_code == 0
    assert grants(remembered) == [("ann@laptop", False, ())]


def test_what_is_no_key_is_refused_before_any_machine_is_asked(
    machines: Machines, remembered: Target, tmp_path: Path
) -> None:
    ensure_key(tmp_path / "id", "ann@laptop")
    assert refusal("grant", "demo", str(tmp_path / "id")) == (
        f"{tmp_path}/id is a private key, which stays with its owner;"
        f" name its public half: {tmp_path}/id.pub"
    )
    assert refusal("grant", "demo", "bob") == (
        "there is no file 'bob', and no key of that name was granted;"
        " `gpuctl grant demo ~/.ssh/id_ed25519.pub`"
    )
    assert refusal("grant", "demo", OWN) == (
        "gpuctl demo is gpuctl's own key of cluster demo, which has access;"
        " name the public key of a colleague"
    )
    assert refusal("revoke", "demo", ANN) == (
        f"ann@laptop ({PRINT}) was not granted to cluster demo;"
        " `gpuctl grant demo` lists the keys that were"
    )
    assert refusal("revoke", "demo", "bob") == (
        "there is no file 'bob', and no key of that name was granted;"
        " `gpuctl grant demo` lists them"
    )
    own = "that is gpuctl's own key of cluster demo, which cannot be revoked;"
    for name in (OWN, "gpuctl demo", parse_public_key(OWN, "").fingerprint):
        assert refusal("revoke", "demo", name) == f"{own} `gpuctl down demo` removes the cluster"
    assert "there is no cluster 'other'" in refusal("grant", "other", ANN)
    assert "there is no cluster 'other'" in refusal("grant", "other")
    assert (machines.scripts, grants(remembered)) == ([], [])


def test_a_colleague_makes_the_bastion_anew_and_not_all_nodes(
    machines: Machines, remembered: Target
) -> None:
    known = ClusterStore(remembered).record("demo")
    assert known is not None
    later = known.resolved.model_copy(update={"nodes_public_key": generate_pair("nodes")[1]})
    ClusterStore(remembered).write(known.model_copy(update={"resolved": later}))

    def check(*ending: str) -> Any:
        return provision.access.check_new_machines(
            "demo", ClusterStore(remembered), ending, f"- {key} (granted)"
        )

    key = ANN
    with pytest.raises(InputError) as refused:
        check("bastion")
    assert str(refused.value) == (
        "cluster demo would get a new bastion, which accepts none of your ssh keys; ask a member to"
        " run `gpuctl grant demo yourkey.pub`, or run this command on the machine that created the"
        " cluster"
    )
    key = ensure_key(Path.home() / ".ssh" / "id_ed25519", "ann@desk")
    assert check("bastion") is None
    for ending in (("node0", "node1"), ("node0", "node1", "bastion")):
        with pytest.raises(InputError) as refused:
            check(*ending)
        assert str(refused.value) == (
            "new machines of cluster demo cannot be opened from this machine: no node gives it the"
            " nodes' key: it has no other nodes; run this command on the machine that created the"
            " cluster"
        )
