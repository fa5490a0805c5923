"""Rules about a run on its nodes: each with its exact message."""

from typing import Any

import pytest

from config.errors import InputError
from config.run.run_file import RUN_TYPES
from engine.plan.launch_plan import launch_plan
from engine.plan.rules import RULES
from nodes.inventory import OWN_MACHINES, Inventory
from tests.engine.conftest import make_inventory


def refusal(inventory: Inventory, **fields: Any) -> str:
    """What launch_plan says; empty where it plans."""
    kind = fields.get("type", "mpi")
    bare: dict[str, Any] = {"type": kind, "name": "job", "nodes": 2}
    if kind != "nccl-tests":
        bare["commands"] = ("./train",)
    run = RUN_TYPES[kind].model_validate({**bare, **fields})
    try:
        launch_plan(run, inventory, "job-000001")
    except InputError as error:
        assert error.exit_code == 2
        return str(error)
    return ""


def with_software(**software: str) -> Inventory:
    inventory = make_inventory(2)
    nodes = [node.model_copy(update={"software": software}) for node in inventory.nodes]
    return inventory.model_copy(update={"nodes": tuple(nodes)})


def test_as_many_nodes_as_there_are() -> None:
    assert refusal(make_inventory(2), nodes=4) == (
        "run job wants 4 nodes, cluster demo has 2; use `--nodes 2`, or bring up a larger cluster"
    )


def test_the_least_of_an_elastic_run_is_there() -> None:
    fields: dict[str, Any] = {"type": "torchrun", "nodes": 1, "nnodes": "3..4"}
    assert refusal(make_inventory(3), **fields) == ""
    assert refusal(make_inventory(2), **fields) == (
        "run job wants 3 to 4 nodes, cluster demo has 2; set `nnodes: 1..2`, or bring up a larger"
        " cluster"
    )


@pytest.mark.parametrize("kind", ["mpi", "nccl-tests", "torchrun", "horovod", "deepspeed"])
def test_a_rank_has_a_gpu_of_its_own(kind: str) -> None:
    assert refusal(make_inventory(2), type=kind, procs_per_node=16) == (
        "procs_per_node is 16, node[0-1] (p4d.24xlarge) have 8 GPUs; set it to 8 or less, or leave"
        " it out for one rank per GPU"
    )
    assert refusal(make_inventory(2), type=kind, procs_per_node=8) == ""


def test_nodes_without_gpus_have_as_many_ranks_as_are_asked_for() -> None:
    assert refusal(make_inventory(2, gpus=0), procs_per_node=16) == ""


def test_a_preset_fits_the_hardware() -> None:
    assert refusal(with_software(openmpi="4.1.7"), network="efa") == (
        "network efa does not fit: node0 has no EFA interface; remove `network`: gpuctl then"
        " chooses the preset for the nodes' hardware"
    )
    assert refusal(make_inventory(1), nodes=1, network="hcc") == (
        "network hcc does not fit: it is for 2 nodes or more, the run has 1; remove `network`:"
        " gpuctl then chooses the preset for the nodes' hardware"
    )
    assert refusal(make_inventory(2), network="efa") == ""


def test_rdma_is_there_where_it_is_asked_for() -> None:
    assert refusal(make_inventory(2), network="rdma") == ""
    assert refusal(with_software(openmpi="4.1.7"), network="rdma") == (
        "network is rdma, node[0-1] have no RDMA device; see its driver (`ls"
        " /sys/class/infiniband`) and repeat `gpuctl up`, or remove `network`"
    )
    inventory = with_software(openmpi="4.1.7")
    first, second = inventory.nodes
    one = first.model_copy(update={"efa": 4})
    assert refusal(inventory.model_copy(update={"nodes": (one, second)}), network="rdma") == (
        "network is rdma, node1 has no RDMA device; see its driver (`ls /sys/class/infiniband`)"
        " and repeat `gpuctl up`, or remove `network`"
    )
    other = second.model_copy(update={"hcas": ("mlx5_0:InfiniBand",)})
    assert refusal(inventory.model_copy(update={"nodes": (one, other)}), network="rdma") == (
        "network is rdma, and the nodes have RDMA devices of different kinds; run on nodes of one"
        " kind, or remove `network`"
    )


def test_machines_that_gpuctl_does_not_rent_are_not_ended() -> None:
    inventory = make_inventory(2).model_copy(update={"instance_type": OWN_MACHINES})
    assert refusal(inventory, on_stop="destroy") == (
        "on_stop is destroy, and cluster demo is of machines that gpuctl does not rent: it does not"
        " end them; set `on_stop: keep`"
    )
    assert refusal(inventory, on_stop="keep") == ""


def test_what_is_required_can_be_proven() -> None:
    assert refusal(with_software(openmpi="4.1.7"), verify="require") == (
        "verify is require, but nothing of run job can be proven: its network preset tcp promises"
        " no RDMA; remove `verify`, or use nodes with RDMA"
    )


def test_the_implementation_is_there() -> None:
    here = with_software(openmpi="4.1.7", docker="28.1.1")
    assert refusal(here, implementation="intel") == (
        "implementation is intel, node[0-1] have no Intel MPI (found: openmpi 4.1.7); choose an"
        " installed one, set PATH in `env` to the folder of yours, or use an `image`"
    )
    assert refusal(with_software(podman="4.3.1")) == (
        "implementation is openmpi, node[0-1] have no Open MPI (found: none); choose an installed"
        " one, set PATH in `env` to the folder of yours, or use an `image`"
    )
    assert refusal(
        with_software(podman="4.3.1", openmpi="4.1.7", mpich="4.0.2"), implementation="intel"
    ) == (
        "implementation is intel, node[0-1] have no Intel MPI (found: mpich 4.0.2, openmpi 4.1.7);"
        " choose an installed one, set PATH in `env` to the folder of yours, or use an `image`"
    )
    first, second = here.nodes
    mixed = (first.model_copy(update={"software": {"intel": "2021.17"}}), second)
    assert refusal(here.model_copy(update={"nodes": mixed}), implementation="intel") == (
        "implementation is intel, node1 has no Intel MPI (found: openmpi 4.1.7); choose an"
        " installed one, set PATH in `env` to the folder of yours, or use an `image`"
    )
    assert refusal(here) == ""
    assert refusal(here, implementation="intel", env={"PATH": "/opt/mine"}) == ""
    assert refusal(here, implementation="intel", image="impi:1") == ""
    assert refusal(make_inventory(2), implementation="intel") == ""  # nobody has looked


def test_value_longer_than_linux_passes() -> None:
    said = (
        "env A is 131072 bytes long, Linux accepts 131071; put the value into a file on the nodes"
    )
    assert refusal(make_inventory(2), env={"A": "x" * 131_070}) == said
    assert refusal(make_inventory(2), roles={"worker": {"env": {"A": "x" * 131_070}}}) == said
    assert refusal(make_inventory(2), env={"A": "x" * 131_069}) == ""


def test_all_complaints_come_at_once() -> None:
    said = refusal(make_inventory(1), procs_per_node=9, network="hcc")
    assert [line.partition(";")[0] for line in said.splitlines()] == [
        "run job wants 2 nodes, cluster demo has 1",
        "procs_per_node is 9, node0 (p4d.24xlarge) has 8 GPUs",
        "network hcc does not fit: it is for 2 nodes or more, the run has 1",
    ]


def test_every_rule_is_documented() -> None:
    for rule in RULES:
        assert all(
            text.endswith((".", ")).")) for text in (rule.requirement, rule.reason, rule.remedy)
        )
