"""The agent's commands. The client calls start, follow, send, move, drop, hold, receive, outputs;
queue; the agent calls supervise, work, attach, save, notify and metrics, and receive on other
nodes.
"""

from __future__ import annotations

import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from engine.agent.link.process_title import rename_process
from engine.contract.exit_status import BUSY, NO_PLAN, REFUSED

if TYPE_CHECKING:
    from engine.contract.plan import LaunchPlan

# Each command imports only what it uses: imports take most of the time when eight workers start at
# once on two cores.

PROGRAM = "__main__.py"


def main() -> int:
    """Run one command and return its exit status.

    start FOLDER | supervise FOLDER | work FOLDER | attach FOLDER | save FOLDER |
    follow FOLDER --from BYTE | send FOLDER WORD | move FOLDER PLACE | drop FOLDER |
    hold FOLDER LOCK
    where FOLDER is /var/lib/gpuctl/runs/<run-id>; receive RUNS, queue RUNS, outputs WORKING_FOLDER,
    notify -, metrics /run/gpuctl.
    """
    command, folder, rest = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    rename_process(command, str(folder.parent))
    if command == "start":
        return start(folder)
    if command == "supervise":
        return supervise(folder)
    if command in ("follow", "send"):
        from engine.agent.link.control import call, follow

        return follow(folder, int(rest[1])) if command == "follow" else call(folder, " ".join(rest))
    if command == "hold":
        from engine.agent.head.cluster_locks import hold

        return hold(folder, rest[0])
    if command in ("move", "drop"):
        from engine.agent.head.queue import Queue

        queue, run_id = Queue(folder.parent), folder.name
        done = queue.move(run_id, int(rest[0])) if command == "move" else queue.drop(run_id)
        return 0 if done else REFUSED
    if command == "queue":
        from engine.agent.head.queue import Queue

        sys.stdout.write(Queue(folder).describe())
        return 0
    return _serve(command, folder)


def _serve(command: str, folder: Path) -> int:
    """Run a command that every node has, also a worker's."""
    if command == "work":
        from engine.agent.node.worker import work

        return work(folder)
    if command == "attach":
        from engine.agent.node.supervisor_link import attach

        return attach(folder)
    if command == "notify":
        from engine.agent.notify.notification import deliver

        return deliver()
    if command == "metrics":
        from engine.agent.metrics.openmetrics import exposition

        sys.stdout.write(exposition(folder))
        return 0
    if command == "receive":
        from engine.agent.node.code_store import receive

        return receive(folder, _this_file())
    if command == "save":
        from engine.agent.head.save_to_shared import save as leave
    else:
        from engine.agent.node.outputs import send as leave
    return leave(folder)


def start(folder: Path) -> int:
    """Start the run from stdin, a RunOrder, in its own unit.

    Return 0, or BUSY with `{"busy": [RUN, …]}` on stdout if other runs have its nodes. A run with
    `queue` in its plan waits for them in its unit.
    """
    from engine.agent.head.queue import Queue
    from engine.agent.head.secret_store import write_secrets
    from engine.agent.head.supervisor_unit import start_unit
    from engine.agent.journal.locks import create_folder
    from engine.agent.journal.run_folders import mark_used
    from engine.agent.journal.run_secrets_file import remove_handover, write_handover
    from engine.contract.codec import from_json
    from engine.contract.plan import LaunchPlan

    run = json.loads(sys.stdin.buffer.read())
    planned = {"plan": run.pop("plan"), "common": run.pop("common", None)}
    plan, queue = from_json(LaunchPlan, planned["plan"]), Queue(folder.parent)
    busy = () if plan.queue else queue.runs_in_the_way(_node_names(plan))
    if not busy:
        create_folder(folder)  # held until the supervisor, which holds it too, listens
        mark_used(folder)
        # Clients must call the agent that runs, also after an upgrade of the client.
        (folder / "agent.pyz").symlink_to(_this_file())
        write_secrets(folder, json.dumps(run).encode())
        write_handover(folder, json.dumps(planned).encode())
        status = start_unit(folder, f"{_this_file()}/{PROGRAM}")
        if status == 0:
            return 0
        remove_handover(folder)
        busy = queue.runs_in_the_way(_node_names(plan))
        if not busy:
            return status
    sys.stdout.write(json.dumps({"busy": busy}) + "\n")
    return BUSY


def supervise(folder: Path) -> int:
    """Supervise the run to its end; return 0, or BUSY if other runs have its nodes.

    If an earlier supervisor of the run was killed, take the run up.
    """
    from engine.agent.head.queue import Queue
    from engine.agent.head.secret_store import take_secrets
    from engine.agent.head.supervisor_process import supervise_run
    from engine.agent.journal.locks import protect_folder
    from engine.agent.journal.run_folders import mark_used
    from engine.agent.journal.run_secrets_file import handover_path, remove_handover
    from engine.contract.codec import from_json
    from engine.contract.plan import RunOrder

    try:
        run = json.loads(handover_path(folder).read_text(encoding="utf-8"))
        run |= json.loads(take_secrets(folder))
    except FileNotFoundError:
        return NO_PLAN
    order = from_json(RunOrder, run)
    plan = order.plan
    protect_folder(folder)  # the queue's sign that the run lives
    if not Queue(folder.parent).enter(folder.name, _node_names(plan), may_wait=plan.queue):
        return BUSY
    supervise_run(folder, order.with_common_texts(), _this_file())
    mark_used(folder)
    remove_handover(folder)
    return 0


def _node_names(plan: LaunchPlan) -> tuple[str, ...]:
    return tuple(node.name for node in plan.nodes)


def _this_file() -> Path:
    """Return the agent's folder, or its zip application."""
    path = Path(sys.argv[0]).resolve()
    return path.parent if path.name == PROGRAM else path
