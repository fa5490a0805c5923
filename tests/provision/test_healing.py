"""`heal` ends only machines that it can make again, and no other node changes."""

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from botocore.exceptions import ClientError

from config.errors import CloudError, InputError
from config.progress import silent
from config.target import Target
from provision import healing
from provision.setup.nodes_key import NodesKey
from provision.state.store import ClusterStore
from tests.engine.conftest import make_inventory

THERE = make_inventory(3)
KEY = NodesKey("the private key", "the public key", is_from_node=True)
TARGET = Target("aws", "us-east-1", Path("/nonexistent"))


class Cloud:
    """EC2 and `up`, as `heal` uses them: what was done, in order."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.plans = [True, True]  # whether each preview only adds
        self.made: tuple[str, ...] = ()
        self.unknown: list[str] = []
        self.is_denied = False
        self.refusal: InputError | None = None
        self.calls: list[str] = []
        record = SimpleNamespace(resolved=SimpleNamespace(cluster="the cluster file"))
        for name, value in {
            "plan": self._plan,
            "up": self._up,
            "join": self._join,
            "client": lambda *_: self,
            "check_new_machines": self._read_key,
        }.items():
            monkeypatch.setattr(healing, name, value)
        monkeypatch.setattr(ClusterStore, "record", lambda *_: record)

    def _plan(self, cluster: object, *_: object) -> Any:
        assert cluster == "the cluster file"
        self.calls.append("plan")
        changes = SimpleNamespace(only_adds=self.plans.pop(0), new_machines=self.made)
        return SimpleNamespace(plan=changes, resolved=SimpleNamespace(bastion_user_data="keys"))

    def _read_key(self, _: str, __: ClusterStore, ending: set[str], entrance: str) -> NodesKey:
        assert (ending, entrance) == ({*self.made}, "keys")
        assert "terminate" not in " ".join(self.calls)
        if self.refusal:
            raise self.refusal
        return KEY

    def _up(self, _: object, __: object, ___: object, key: NodesKey, ____: object) -> Any:
        assert key is KEY, "nobody asks for it again: the node that gave it may not answer"
        self.calls.append("up")
        return THERE

    def _join(self, there: object, names: set[str], _: object) -> None:
        assert there == THERE
        self.calls.append(f"join {' '.join(sorted(names))}")

    def terminate_instances(self, *, InstanceIds: list[str]) -> None:
        if self.is_denied:
            refused: Any = {"Error": {"Code": "UnauthorizedOperation", "Message": "no"}}
            raise ClientError(refused, "TerminateInstances")
        if InstanceIds[0] in self.unknown:
            answer: Any = {"Error": {"Code": "InvalidInstanceID.NotFound", "Message": "none"}}
            raise ClientError(answer, "TerminateInstances")
        self.calls += [f"terminate {one}" for one in InstanceIds]

    def get_waiter(self, name: str) -> Any:
        assert name == "instance_terminated"
        return SimpleNamespace(
            wait=lambda **words: self.calls.append(f"wait {words['InstanceIds']}")
        )


def replace(cloud: Cloud, *names: str) -> None:
    cloud.made = names
    nodes = [node for node in THERE.nodes if node.name in names]
    assert healing.replace_nodes("demo", nodes, TARGET, silent) is THERE


def test_machines_end_before_they_are_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    replace(cloud, "node0", "node2")
    assert cloud.calls == [
        *("plan", "terminate i-1", "terminate i-3", "wait ['i-1', 'i-3']"),
        *("plan", "up", "join node0 node2"),
    ]


def test_a_cluster_that_differs_from_its_record_is_left_as_it_is(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.plans = [False]
    with pytest.raises(InputError) as caught:
        replace(cloud, "node1")
    assert str(caught.value) == (
        "cluster demo differs from its record, so that other nodes would change too; run"
        " `gpuctl up` with its file first"
    )
    assert cloud.calls == ["plan"]


def test_a_machine_that_aws_has_forgotten_is_made_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    cloud.unknown = ["i-2"]
    replace(cloud, "node1")
    assert cloud.calls == ["plan", "plan", "up", "join node1"]


def test_a_change_after_the_end_stops_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    cloud.plans = [True, False]
    with pytest.raises(InputError, match="cluster demo was changed meanwhile"):
        replace(cloud, "node1")
    assert cloud.calls[-1] == "plan"


def test_no_machine_ends_before_the_key_of_new_ones_is_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    cloud = Cloud(monkeypatch)
    cloud.refusal = InputError("no node gives it", "run it there")
    with pytest.raises(InputError, match="no node gives it"):
        replace(cloud, "node1")
    assert cloud.calls == ["plan"]


def test_a_refusal_of_aws_ends_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cloud = Cloud(monkeypatch)
    cloud.is_denied = True
    with pytest.raises(CloudError, match="UnauthorizedOperation"):
        replace(cloud, "node1")
    assert cloud.calls == ["plan"]
