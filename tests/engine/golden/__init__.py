"""Golden launch plans: every mode on 1, 2 and 16 nodes, by saved run files and inventories.

`make golden` renews them; a change of one is a change of what is launched.
A plan is folded: texts are lists of lines, and a node says only what differs from the one before.
"""

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

from config.loading.load import load_run
from config.run.run_file import Run, Torchrun
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import launch_plan
from nodes.inventory import Inventory

HERE = Path(__file__).parent
SIZES = (1, 2, 16)
CASES = tuple(
    (path.stem, size)
    for path in sorted((HERE / "runs").glob("*.yaml"))
    for size in SIZES
    if size >= {"ps-worker": 2, "mpi-intel": 2}.get(path.stem, 1)
)
"""Run file and number of nodes: what no single node can be is left out."""


def inventory_path(size: int) -> Path:
    return HERE / "inventories" / f"{size}.json"


def plan_path(case: str, size: int) -> Path:
    return HERE / "plans" / f"{case}-{size}.json"


def run_text(case: str, size: int) -> str:
    """The run file, for so many nodes."""
    text = (HERE / "runs" / f"{case}.yaml").read_text()
    return text.replace("\nnodes: 2\n", f"\nnodes: {size}\n")


def plan_of(case: str, size: int) -> LaunchPlan:
    run: Run = load_run(HERE / "runs" / f"{case}.yaml")
    if not (isinstance(run, Torchrun) and run.nnodes):
        run = run.model_copy(update={"nodes": size})
    inventory = Inventory.model_validate_json(inventory_path(size).read_bytes())
    return launch_plan(run, inventory, f"{run.name}-000000")


def folded(plan: dict[str, Any]) -> dict[str, Any]:
    """The plan with lines for texts, and each node without what it shares with the one before."""
    nodes = [_with_lines(node) for node in plan["nodes"]]
    differences = [_difference(before, node) for before, node in pairwise(nodes)]
    return {**plan, "nodes": [nodes[0], *differences]}


def _with_lines(node: dict[str, Any]) -> dict[str, Any]:
    files = {path: text.split("\n") for path, text in node["files"].items()}
    return {**node, "script": node["script"].split("\n"), "files": files}


def _difference(before: dict[str, Any], after: dict[str, Any]) -> dict[str, Any]:
    """What `after` has and `before` has not; None for what it lacks."""
    found: dict[str, Any] = dict.fromkeys(sorted(before.keys() - after.keys()))
    for key, value in after.items():
        old = before.get(key)
        if isinstance(value, dict) and isinstance(old, dict):
            if inner := _difference(old, value):
                found[key] = inner
        elif value != old:
            found[key] = value
    return found


def text_of(plan: dict[str, Any]) -> str:
    return json.dumps(folded(plan), indent=1, ensure_ascii=False) + "\n"
