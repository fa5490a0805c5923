"""The benchmark compares equals: its bare program makes what gpuctl makes."""

from collections import Counter
from pathlib import Path

import pytest
from pulumi.automation import EngineEvent

from config.progress import silent
from infra.pulumi_engine.changes import Plan, plan_of
from infra.pulumi_engine.installation import find_engine
from infra.pulumi_engine.stack import Stack
from tests.infra.region import region, resolved

pytestmark = pytest.mark.engine


def test_the_bare_program_makes_the_same_resources(tmp_path: Path) -> None:
    from benchmarks import bare  # imports Pulumi's SDK for AWS: seconds of every collection

    engine = find_engine(silent)
    events: list[EngineEvent] = []
    with region(tmp_path) as here:
        wanted = resolved(here.target, nodes=3)
        ours = Stack("demo", here.target, engine).preview(wanted)
        stack = bare.stack(wanted, here.target, engine, tmp_path / "bare")
        stack.preview(on_event=events.append)
    assert _made(ours) == _made(plan_of(events))
    assert _made(ours)["create", "aws:ec2/instance:Instance"] == 1 + 3


def _made(plan: Plan) -> Counter[tuple[str, str]]:
    return Counter((change.op, change.type) for change in plan.changes)
