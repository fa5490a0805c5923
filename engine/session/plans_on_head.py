"""The launch plans of runs, as their supervisors have them: on the head, in memory.

A client that did not start a run needs its plan to make a lost node ready for it: which code and
which image. The plan has no values of secrets, and goes to no disk.
"""

import shlex

from config.errors import NodeError, RunError
from config.foreign import Malformed, parse_foreign
from config.identifiers import RunId
from config.models import Value
from engine.contract.plan import LaunchPlan, RunOrder
from nodes.inventory import Inventory
from nodes.kept_connections import connect

_ASK_S = 60
_LARGEST = 64 << 20
"""Bytes of a plan, which has the scripts and files of all nodes."""
_PRINT = """
import json, os, pathlib, sys
folder = os.environ.get("GPUCTL_RUNTIME_DIR", "/run/gpuctl")
for run in sys.argv[1:]:
    path = pathlib.Path(folder, run + ".json")
    if path.exists():
        run = json.loads(path.read_text())
        print(json.dumps({"plan": run["plan"], "common": run.get("common"), "secrets": {}}))
"""


async def plans_of(runs: list[str], inventory: Inventory) -> dict[str, LaunchPlan]:
    """Return the launch plans of these runs, by their ids, without runs that are over.

    Raises RunError if another version of gpuctl started one.
    """
    head = inventory.nodes[0]
    command = shlex.join(["python3", "-IS", "-c", _PRINT, *runs])
    async with connect(inventory) as connections:
        done = await connections.run(head, command, timeout=_ASK_S)
    if done.exit_status != 0:
        raise NodeError(f"{head.name} cannot report the plans of its runs: {done.complaint}", "")
    plans = [_plan(line) for line in done.stdout.splitlines()]
    for plan in plans:
        if plan.run_id not in runs or plan.cluster != inventory.cluster:
            raise NodeError(
                f"{head.name} answers for run {plan.run_id} of cluster {plan.cluster}, which is not"
                " its own",
                "",
            )
    return {plan.run_id: plan for plan in plans}


def _plan(line: str) -> LaunchPlan:
    try:
        return parse_foreign(RunOrder, line, _LARGEST).with_common_texts().plan
    except Malformed as error:
        raise RunError(
            f"another version of gpuctl started {_named(line)}",
            "attach with that version",
        ) from error


class _NamedPlan(Value):
    run_id: RunId


class _Named(Value):
    plan: _NamedPlan


def _named(line: str) -> str:
    try:
        return f"run {parse_foreign(_Named, line, _LARGEST).plan.run_id}"
    except Malformed:
        return "a run"
