"""Start a run on the head, for a client: what the supervisor needs is written, its unit begins."""

from __future__ import annotations

import json
import sys
from pathlib import Path

from engine.agent.head.queue import Queue
from engine.agent.head.secret_store import write_secrets
from engine.agent.head.supervisor_unit import start_unit
from engine.agent.journal.locks import create_folder
from engine.agent.journal.run_folders import mark_used
from engine.agent.journal.run_secrets_file import remove_handover, write_handover
from engine.agent.program import PROGRAM, this_file
from engine.contract.codec import from_json
from engine.contract.exit_status import BUSY
from engine.contract.plan import LaunchPlan


def start(folder: Path) -> int:
    """Start the run from stdin, a RunOrder, in its own unit.

    Return 0, or BUSY with `{"busy": [RUN, …]}` on stdout if other runs have its nodes. A run with
    `queue` in its plan waits for them in its unit.
    """
    run = json.loads(sys.stdin.buffer.read())
    planned = {"plan": run.pop("plan"), "common": run.pop("common", None)}
    plan, queue = from_json(LaunchPlan, planned["plan"]), Queue(folder.parent)
    busy = () if plan.queue else queue.runs_in_the_way(plan.node_names)
    if not busy:
        create_folder(folder)  # held until the supervisor, which holds it too, listens
        mark_used(folder)
        # Clients must call the agent that runs, also after an upgrade of the client.
        (folder / "agent.pyz").symlink_to(this_file())
        write_secrets(folder, json.dumps(run).encode())
        write_handover(folder, json.dumps(planned).encode())
        status = start_unit(folder, f"{this_file()}/{PROGRAM}")
        if status == 0:
            return 0
        remove_handover(folder)
        busy = queue.runs_in_the_way(plan.node_names)
        if not busy:
            return status
    sys.stdout.write(json.dumps({"busy": busy}) + "\n")
    return BUSY
