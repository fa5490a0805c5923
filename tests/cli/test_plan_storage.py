"""What a plan says of storage: where it is, and that what is removed is lost."""

from cli.render.plan import loss_warnings, plan_json, plan_lines, storage_lines
from config.cluster.cluster_file import Cluster
from infra.stack.changes import Change, Plan
from provision.up import FleetPlan
from tests.cli.test_plan_text import P5, resolved

EFS = "aws:efs/fileSystem:FileSystem"


def fleet(shared: dict[str, str] | None, disks: int, *changes: Change) -> FleetPlan:
    asked = {"name": "c", "nodes": 2, "instance_type": "p5.48xlarge", "storage": {"shared": shared}}
    bare = resolved(2, P5)
    instance = bare.instance_type.model_copy(update={"local_disks": disks})
    update = {"cluster": Cluster.model_validate(asked), "instance_type": instance}
    return FleetPlan(bare.model_copy(update=update), Plan(changes), None)


def test_a_plan_says_what_is_shared_and_what_is_lost_with_the_instance() -> None:
    lines = plan_lines(fleet({"type": "efs", "path": "/data"}, 8))
    shared = (
        "Storage: efs at /data of every node; `gpuctl down` removes it, data and all;"
        " not in the cost"
    )
    assert shared in lines
    striped = "Scratch: its own 8 disks, striped, at /scratch of each node; lost with the instance"
    assert striped in lines
    assert storage_lines(fleet(None, 1).resolved) == [
        "Scratch: its own disk at /scratch of each node; lost with the instance"
    ]


def test_a_plan_says_nothing_of_storage_that_is_not_there() -> None:
    assert storage_lines(fleet(None, 0).resolved) == []


def test_a_file_system_that_goes_is_warned_of() -> None:
    for op, said in (("replace", "replaced"), ("delete", "deleted")):
        planned = fleet(None, 0, Change(op, EFS, "shared"))  # type: ignore[arg-type]
        warning = f"what is in the shared file system is lost: it is {said}"
        assert plan_lines(planned)[-1] == f"Warning: {warning}."
        assert plan_json(planned)["warnings"] == [warning]
    assert loss_warnings(Plan((Change("create", EFS, "shared"),))) == []
