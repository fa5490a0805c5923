"""`capacity.spare_attempts`: `up` replaces a machine that fails, alone, or leaves nothing."""

from collections.abc import Mapping
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import BrokenNodes
from config.progress import Progress
from infra.stack.installation import Engine
from nodes.inventory import Inventory, Replaced
from provision import up as life
from provision.aws.resources import find_all
from provision.down import down
from provision.nodes.spares import Choice, choose
from provision.state.store import ClusterStore
from tests.infra.region import Region

pytestmark = pytest.mark.thorough

THREE = ("node0", "node1", "node2")


@pytest.mark.parametrize(
    ("causes", "attempts", "used", "chosen"),
    [
        ({"node1": "7 GPUs"}, 1, 0, Choice(("node1",))),
        ({"node2": "7 GPUs", "node0": "Xid 79"}, 3, 1, Choice(("node0", "node2"))),
        ({"node0": "a", "node1": "b", "node2": "a"}, 3, 0, Choice(THREE)),
        (
            dict.fromkeys(THREE, "'false' failed with exit code 1"), 9, 0,
            Choice(refusal="no node is replaced, because all 3 failed alike"),
        ),
        (
            {"node1": "is terminated", "bastion": "is terminated"}, 9, 0,
            Choice(refusal="no node is replaced, because bastion failed too"),
        ),
        (
            {"node0": "a", "node1": "b"}, 1, 0,
            Choice(
                refusal="node[0-1] cannot be replaced: no machine was replaced before, and"
                " capacity.spare_attempts is 1"
            ),
        ),
        (
            {"node1": "b"}, 1, 1,
            Choice(
                refusal="node1 cannot be replaced: 1 was replaced before, and"
                " capacity.spare_attempts is 1"
            ),
        ),
    ],
)  # fmt: skip
def test_the_choice_of_nodes(
    causes: Mapping[str, str], attempts: int, used: int, chosen: Choice
) -> None:
    assert choose(causes, THREE, attempts, used) == chosen


def test_a_single_node_is_replaced() -> None:
    assert choose({"node0": "did not boot"}, ("node0",), 1, 0) == Choice(("node0",))


class Machines:
    """Stands for the bootstrap: node1's first machines lack a GPU, `bad` of them."""

    def __init__(self, bad: int) -> None:
        self.bad, self.fleets, self.keys = bad, list[Inventory](), list[object]()

    def bootstrap(
        self, resolved: Resolved, there: Inventory, key: object, *_: object, is_patient: bool
    ) -> Inventory:
        assert is_patient == (resolved.cluster.capacity.spare_attempts > 0)
        self.fleets.append(there)
        self.keys.append(key)
        if len(self.fleets) <= self.bad:
            raise BrokenNodes("node1 (10.0.0.2): GPUs: 7", "see", {"node1": "GPUs: 7"})
        return there

    def ids(self, name: str) -> list[str]:
        return [one.instance_id for fleet in self.fleets for one in fleet.nodes if one.name == name]


@pytest.mark.engine
def test_one_machine_is_replaced_and_then_everything_is_removed(
    here: Region, engine: Engine
) -> None:
    del engine  # it exists
    told: list[Progress] = []

    def up(bad: int, attempts: int) -> tuple[Machines, Inventory]:
        machines = Machines(bad)
        fields: dict[str, Any] = {"capacity": {"spare_attempts": attempts}}
        fields |= {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge"}
        cluster = Cluster.model_validate(fields)
        told.clear()
        plan = life.plan(cluster, here.target, told.append)
        return machines, life.up(plan, here.target, told.append, boot=machines.bootstrap)

    machines, ready = up(bad=1, attempts=1)
    first, second = machines.ids("node1")
    assert ready.replaced == (Replaced(name="node1", instance_id=first, cause="GPUs: 7"),)
    assert [node.instance_id for node in ready.nodes] == [machines.ids("node0")[0], second]
    assert len(set(machines.ids("node0"))) == 1
    assert machines.keys[0] is machines.keys[1], "the node that gave it may have ended"
    assert [(one.state, one.detail) for one in told if one.stage == "spare"] == [
        ("running", f"replaces {first}: GPUs: 7"),
        ("done", f"replaces {first}"),
    ]
    kept = ClusterStore(here.target).record("demo")
    assert kept is not None
    assert kept.status == "ready"

    # A cluster that exists is never removed: it may have data.
    with pytest.raises(BrokenNodes) as caught:
        up(bad=2, attempts=1)
    assert caught.value.hint == (
        "see\nnode1 cannot be replaced: 1 was replaced before, and capacity.spare_attempts is 1"
        "\n`gpuctl heal demo` replaces nodes that are not fit for jobs"
        "\nwhat exists is kept for inspection; `gpuctl down demo` removes it"
    )
    assert [one.kind for one in find_all(here.target, "demo")].count("instance") == 3
    down("demo", here.target, told.append)

    with pytest.raises(BrokenNodes) as caught:
        up(bad=2, attempts=1)
    assert caught.value.hint == (
        "see\nnode1 cannot be replaced: 1 was replaced before, and capacity.spare_attempts is 1"
        "\nnothing of it is left"
    )
    assert find_all(here.target, "demo") == []
    assert ClusterStore(here.target).record("demo") is None
