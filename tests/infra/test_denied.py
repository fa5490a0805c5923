"""A cluster is made and removed with the least permissions, and a missing one is named."""

import json
from pathlib import Path

import pytest

from config.errors import InfraError
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from lab import fault_kinds, fault_table
from provision.permissions.actions import needed
from provision.permissions.policy import policy
from tests.infra.region import Region, resolved
from tests.infra.test_stack import left

pytestmark = pytest.mark.engine


def allow(here: Region, actions: frozenset[str], folder: Path) -> None:
    file = folder / "policy.json"
    file.write_text(json.dumps(policy(actions)))
    given = fault_kinds.parse("policy", (str(file),))
    fault_table.write(here.faults, {"policy": given})


def test_what_is_missing_is_named_and_removal_needs_no_more(
    here: Region, engine: Engine, tmp_path: Path
) -> None:
    actions = needed(("plan", "up", "down"), ("network",))
    stack = Stack("demo", here.target, engine)
    wanted = resolved(here.target)
    allow(here, actions - {"ec2:RunInstances"}, tmp_path)
    with pytest.raises(InfraError) as caught:
        stack.up(wanted)
    assert caught.value.code == "UnauthorizedOperation"
    assert "is not authorized to perform: ec2:RunInstances on resource: arn:aws:ec2:us-east-1:" in (
        caught.value.message
    )
    allow(here, needed(("down",), ("network",)), tmp_path)
    stack.destroy()
    assert left(here) == []
