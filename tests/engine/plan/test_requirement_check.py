"""`requires` of a run compared with the cluster: each misfit and warning with its exact words."""

from typing import Any

import pytest

from config.catalogue.instance_types import catalogue
from config.errors import InputError
from config.run.requirements import parse_range
from engine.plan.launch_plan import launch_plan
from nodes.inventory import Inventory
from tests.engine.conftest import make_inventory, make_run

PRICE = catalogue()["p4d.24xlarge"].price_usd_h or 0.0


def cluster(instance_type: str = "p4d.24xlarge", **changes: Any) -> Inventory:
    known = catalogue().get(instance_type)
    inventory = make_inventory(2, known.gpu.count if known else 8)
    return inventory.model_copy(update={"instance_type": instance_type, **changes})


def refusal(inventory: Inventory, **needs: Any) -> str:
    """What launch_plan says after the run's name; empty where it plans."""
    try:
        launch_plan(make_run(requires=needs), inventory, "job-000001")
    except InputError as error:
        assert error.exit_code == 2
        return "\n".join(line.removeprefix("run job ") for line in str(error).splitlines())
    return ""


def warnings(inventory: Inventory, **needs: Any) -> tuple[str, ...]:
    return launch_plan(make_run(requires=needs), inventory, "job-000001").warnings


@pytest.mark.parametrize(
    ("needs", "line"),
    [
        (
            {"gpu": ("H100", "H200")},
            "asks for GPUs H100 or H200, cluster demo (p4d.24xlarge) has A100; run it on a cluster"
            " that has it, or change the run file",
        ),
        (
            {"gpus": 4},
            "asks for 4 GPUs on a node, cluster demo (p4d.24xlarge) has 8 GPUs; write 4.. if the"
            " job can use all, or run it on another cluster",
        ),
        (
            {"gpus": "16.."},
            "asks for 16.. GPUs on a node, cluster demo (p4d.24xlarge) has 8 GPUs; run it on a"
            " cluster that has it, or change the run file",
        ),
        (
            {"gpu_memory": "24GB"},
            "asks for 24GB of memory of each GPU, cluster demo (p4d.24xlarge) has 40GB; write"
            " 24GB.. if more is as good, or run it on another cluster",
        ),
        (
            {"gpu_memory_total": "1TB.."},
            "asks for 1TB.. of memory of each node's GPUs, cluster demo (p4d.24xlarge) has 320GB;"
            " run it on a cluster that has it, or change the run file",
        ),
        (
            {"compute_capability": "9.0"},
            "asks for compute capability 9.0, cluster demo (p4d.24xlarge) has 8.0; run it on a"
            " cluster that has it, or change the run file",
        ),
        (
            {"compute_capability": "10.3"},
            "asks for compute capability 10.3, cluster demo (p4d.24xlarge) has 8.0; run it on a"
            " cluster that has it, or change the run file",
        ),
        (
            {"cpus": "128.."},
            "asks for 128.. vCPUs of a node, cluster demo (p4d.24xlarge) has 96; run it on a"
            " cluster that has it, or change the run file",
        ),
        (
            {"arch": "arm64"},
            "asks for arm64 processors, cluster demo (p4d.24xlarge) has x86_64; run it on a"
            " cluster that has it, or change the run file",
        ),
        (
            {"memory": "2TB.."},
            "asks for 2TB.. of memory of a node, cluster demo (p4d.24xlarge) has 1152GB; run it on"
            " a cluster that has it, or change the run file",
        ),
        (
            {"shm_size": "600GB"},
            "asks for 600GB of shared memory, cluster demo (p4d.24xlarge) has 576GB; lower it:"
            " /dev/shm has half of a node's memory",
        ),
        (
            {"instance_types": ("p5.48xlarge",)},
            "asks for p5.48xlarge, cluster demo (p4d.24xlarge) has p4d.24xlarge; run it on a"
            " cluster that has it, or change the run file",
        ),
        (
            {"regions": ("eu-west-1", "us-west-2")},
            "asks for eu-west-1 or us-west-2, cluster demo (p4d.24xlarge) has us-east-1; run it on"
            " a cluster that has it, or change the run file",
        ),
        (
            {"zones": ("us-east-1b",)},
            "asks for us-east-1b, cluster demo (p4d.24xlarge) has us-east-1a; run it on a cluster"
            " that has it, or change the run file",
        ),
        (
            {"spot": True},
            "asks for spot instances, cluster demo (p4d.24xlarge) has on-demand instances; remove"
            " it, or bring up a cluster with another `capacity.type`",
        ),
        (
            {"max_price": 20.0},
            "asks for nodes of at most $20/h, cluster demo (p4d.24xlarge) has p4d.24xlarge at"
            " $21.96/h (us-east-1, 2026-07-28); run it on a cluster that has it, or change the run"
            " file",
        ),
    ],
)
def test_what_does_not_fit_is_one_line(needs: dict[str, Any], line: str) -> None:
    assert refusal(cluster(), **needs) == line


@pytest.mark.parametrize(
    ("instance_type", "needs"),
    [
        ("p4d.24xlarge", {"gpu": ("a100",), "gpus": "1..8", "gpu_memory": "40GB"}),
        ("p4d.24xlarge", {"cpus": "96", "memory": "1152GB", "shm_size": "576GB", "spot": False}),
        ("p4d.24xlarge", {"max_price": PRICE, "regions": ("us-east-1",), "arch": "x86_64"}),
        ("p4d.24xlarge", {"gpu_memory_total": "320GB", "compute_capability": "8.0"}),
        ("g5.48xlarge", {"gpu": ("A10G",), "gpu_memory": "24GB", "compute_capability": "8.6"}),
        ("g6e.48xlarge", {"gpu_memory": "48GB"}),
        ("p5en.48xlarge", {"gpu_memory": "141GB"}),
        ("g7e.48xlarge", {"gpu": ("RTXPRO6000",)}),
        ("p6-b300.48xlarge", {"compute_capability": "10.3"}),
    ],
)
def test_what_fits(instance_type: str, needs: dict[str, Any]) -> None:
    assert refusal(cluster(instance_type), **needs) == ""
    assert warnings(cluster(instance_type), **needs) == ()


def test_all_misfits_are_reported_at_once() -> None:
    lines = refusal(cluster(), gpu=("H100",), memory="2TB..").splitlines()
    assert [line.split(",")[0] for line in lines] == [
        "asks for GPUs H100",
        "asks for 2TB.. of memory of a node",
    ]


def test_one_gpu_is_one() -> None:
    assert refusal(make_inventory(2, 1), gpus="2..").startswith(
        "asks for 2.. GPUs on a node, cluster demo (p4d.24xlarge) has 1 GPU; "
    )


def test_a_type_without_gpus() -> None:
    assert refusal(make_inventory(2, 0), gpus="1..") == (
        "asks for 1.. GPUs on a node, cluster demo (c5n.18xlarge) has 0 GPUs; run it on a cluster"
        " that has it, or change the run file"
    )


def test_the_disk_is_the_root_volume_or_nvme() -> None:
    there = cluster(root_gib=200)
    assert (refusal(there, disk="200GB.."), warnings(there, disk="200GB..")) == ("", ())
    assert warnings(there, disk="500GB..") == (
        "500GB.. of disk are on the nodes' own NVMe disks alone (8000GB), the root volume has"
        " 200GB",
    )
    assert warnings(there, disk="8000GB..")[0].startswith("8000GB.. of disk are on the nodes' own")
    assert refusal(there, disk="10TB..") == (
        "asks for 10TB.. of disk on a node, cluster demo (p4d.24xlarge) has 8000GB; raise"
        " `storage.root.gib` of the cluster file"
    )
    assert warnings(cluster(), disk="10GB..") == (
        "disk is not compared: the size of cluster demo's disks is not known",
    )


def test_an_unknown_type_is_not_compared() -> None:
    assert warnings(cluster("p9.48xlarge"), gpu=("X1",), gpus=8, memory="1TB..", max_price=1.0) == (
        "not compared, p9.48xlarge is not in the catalogue: gpu, memory, max price",
    )


def test_the_price_of_spot_instances_is_not_known() -> None:
    there = cluster(is_spot=True)
    assert warnings(there, max_price=5.0) == (
        "max price is not compared: what spot p4d.24xlarge costs today is not known",
    )
    assert warnings(there, max_price=PRICE, spot=True) == ()


def test_another_cluster_than_the_named_one() -> None:
    assert warnings(cluster(), clusters=("mine", "theirs")) == (
        "the run file names mine, theirs; this run goes to cluster demo",
    )
    assert warnings(cluster(), clusters=("mine", "demo")) == ()


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("8", (8, 8)),
        ("2..8", (2, 8)),
        ("..8", (0, 8)),
        ("2..", (2, float("inf"))),
        ("512MB..1.5TB", (0.5, 1536)),
    ],
)
def test_ranges(text: str, expected: tuple[float, float]) -> None:
    assert parse_range(text) == expected


def test_efa_interfaces_are_compared_where_bootstrap_has_counted_them() -> None:
    inventory = cluster()
    assert refusal(inventory, efa="4..") == ""
    few, enough = (
        inventory.model_copy(
            update={"nodes": tuple(node.model_copy(update={"efa": n}) for node in inventory.nodes)}
        )
        for n in (1, 4)
    )
    assert refusal(enough, efa="4..") == ""
    assert refusal(few, efa="4..") == (
        "asks for 4.. EFA interfaces of a node, cluster demo (p4d.24xlarge) has 1; run it on a"
        " cluster that has it, or change the run file"
    )
