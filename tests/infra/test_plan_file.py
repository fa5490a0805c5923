"""What a person approved is carried out, also where the engine sees other values than planned."""

import json
from pathlib import Path

import pytest

from config.progress import Progress
from config.target import Target
from infra.stack.changes import is_within, planned_operations
from infra.stack.engine_events import PlanViolated
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from lab import fault_table
from tests.infra.region import Region, client, resolved

SAME = "a new plan has the same operations"


@pytest.fixture
def faults(here: Region) -> Path:
    return here.faults


@pytest.fixture
def there(here: Region) -> Target:
    return here.target


@pytest.mark.engine
def test_a_plan_is_carried_out_where_its_operations_are_the_same(
    there: Target, faults: Path, engine: Engine
) -> None:
    fault_table.write(faults, {"provider": ["violates", "plan"]})
    wanted, stack = resolved(there, nodes=1), Stack("demo", there, engine)
    assert set(stack.preview(wanted).counts) == {"create"}
    told: list[Progress] = []
    fleet = stack.up(wanted, told.append)
    assert len(fleet.nodes) == 1
    assert [p.detail for p in told if p.state == "running"] == [SAME]
    assert not stack._plan_file(wanted).exists()

    faults.unlink()
    assert stack.preview(wanted).is_empty
    client(there).terminate_instances(InstanceIds=[fleet.nodes[0].instance_id])
    told.clear()
    with pytest.raises(PlanViolated) as changed:
        stack.up(wanted, told.append)
    assert changed.value.message.startswith("demo has changed since the plan was made: resource ")
    assert changed.value.hint == "run the command again to get a new plan"
    assert SAME not in [p.detail for p in told]
    stack.destroy()


def test_the_operations_of_a_plan_file(tmp_path: Path) -> None:
    plan = tmp_path / "plan.json"
    steps = {"vpc": {"steps": ["create"]}, "key": {"steps": ["same"]}, "group": {}}
    plan.write_text(json.dumps({"manifest": {}, "resourcePlans": steps}))
    assert planned_operations(plan) == {"vpc": ("create",), "key": ("same",), "group": ("same",)}


def test_what_is_done_is_no_other_operation() -> None:
    approved = {"vpc": ("create",), "key": ("same",), "node0": ("delete", "create")}
    assert is_within(approved, approved)
    assert is_within({"vpc": ("same",), "key": ("same",)}, approved)
    assert not is_within({"key": ("update",)}, approved)
    assert not is_within({"vpc": ("delete", "create")}, approved)
    assert not is_within({"new": ("create",)}, approved)
