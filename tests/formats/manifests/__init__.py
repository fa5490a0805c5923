"""Manifests as people have them, and the launch plan of each on two nodes.

`make golden` renews the plans.
"""

import json
from pathlib import Path
from typing import Any

from config.loading.load import load_run
from engine.contract.codec import to_json
from engine.plan.launch_plan import launch_plan
from nodes.inventory import Inventory
from tests.engine.golden import inventory_path, text_of

HERE = Path(__file__).parent
NAMES = tuple(path.stem for path in sorted(HERE.glob("*.yaml")))


def manifest_path(name: str) -> Path:
    return HERE / f"{name}.yaml"


def plan_path(name: str) -> Path:
    return HERE / "plans" / f"{name}.json"


def plan_text(name: str) -> str:
    """The manifest's launch plan, folded as the golden plans of run files."""
    run = load_run(manifest_path(name))
    inventory = Inventory.model_validate_json(inventory_path(2).read_bytes())
    plan: dict[str, Any] = json.loads(
        json.dumps(to_json(launch_plan(run, inventory, f"{run.name}-000000")))
    )
    return text_of(plan)
