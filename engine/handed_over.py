"""The launch plans of runs, as their supervisors have them: on the head, in memory.

A client that did not start a run needs its plan to make a lost node ready for it: which code and
which image. The plan has no values of secrets, and goes to no disk.
"""

import json
import shlex

from pydantic import ValidationError

from config.errors import NodeError, RunError
from engine.agent.handover import FOLDER
from engine.launch_plan import LaunchPlan
from nodes.inventory import Inventory
from nodes.ssh import connect

_ASK_S = 60
_PRINT = """
import json, pathlib, sys
for run in sys.argv[2:]:
    path = pathlib.Path(sys.argv[1], run + ".json")
    if path.exists():
        print(json.dumps(json.loads(path.read_text())["plan"]))
"""


async def plans_of(runs: list[str], inventory: Inventory) -> dict[str, LaunchPlan]:
    """Return the launch plans of these runs, by their ids, without runs that are over.

    Raises RunError if another version of gpuctl started one.
    """
    head = inventory.nodes[0]
    command = shlex.join(["python3", "-IS", "-c", _PRINT, str(FOLDER), *runs])
    async with connect(inventory) as connections:
        done = await connections.run(head, command, timeout=_ASK_S)
    if done.exit_status != 0:
        raise NodeError(f"{head.name} cannot report the plans of its runs: {done.complaint}", "")
    return {plan.run_id: plan for plan in map(_plan, done.stdout.splitlines())}


def _plan(line: str) -> LaunchPlan:
    data = json.loads(line)
    try:
        return LaunchPlan.model_validate(data)
    except ValidationError as error:
        raise RunError(
            f"another version of gpuctl started run {data.get('run_id')}",
            "attach with that version",
        ) from error
