"""The benchmark compares equals: its bare program makes what gpuctl makes."""

import os
from collections import Counter
from pathlib import Path

import pytest
from pulumi.automation import EngineEvent

from benchmarks import bare
from benchmarks.fleet import bare_values
from infra.stack.changes import Plan, plan_of
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from tests.infra.region import Region, resolved


@pytest.mark.engine
def test_the_bare_program_makes_the_same_resources(
    here: Region, engine: Engine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("PATH", f"{engine.path.parent}{os.pathsep}{os.environ['PATH']}")
    events: list[EngineEvent] = []
    ours = Stack("demo", here.target, engine).preview(resolved(here.target, nodes=3))
    state = tmp_path / "bare"
    state.mkdir()
    bare.stack(bare_values(3, here.target), state).preview(on_event=events.append)
    assert _made(ours) == _made(plan_of(events))
    assert _made(ours)["create", "aws:ec2/instance:Instance"] == 1 + 3


def _made(plan: Plan) -> Counter[tuple[str, str]]:
    return Counter((change.op, change.type) for change in plan.changes)
