"""The agent's commands: each is a function that gets a folder and the words behind it.

FOLDER is /var/lib/gpuctl/runs/<run-id>, RUNS the folder above it.
"""

from __future__ import annotations

import sys
from importlib import import_module
from pathlib import Path

from engine.agent.link.process_title import rename_process

COMMANDS = {
    # of the client
    "start": ("head.supervisor_unit", "start"),  # FOLDER, the order is on stdin
    "follow": ("link.control", "follow"),  # FOLDER BYTE
    "send": ("link.control", "call"),  # FOLDER WORD
    "hold": ("head.queue", "hold"),  # FOLDER LOCK
    "queue": ("head.queue", "show"),  # RUNS
    "move": ("head.queue", "move"),  # FOLDER PLACE
    "drop": ("head.queue", "drop"),  # FOLDER
    "receive": ("node.code_store", "receive"),  # RUNS, also of the agent on other nodes
    "ranks": ("node.rank_processes", "show"),  # FOLDER
    "outputs": ("node.outputs", "send"),  # the folder with the outputs
    # of the agent
    "supervise": ("head.supervisor_process", "supervise"),  # FOLDER
    "work": ("node.worker", "work"),  # FOLDER
    "attach": ("node.supervisor_link", "attach"),  # FOLDER
    "unit": ("link.units", "unit"),  # the unit's name, its words
    "end": ("link.units", "end"),  # the beginning of names of units
    "idle": ("link.units", "idle"),  # as `end`
    "save": ("head.save_to_shared", "save"),  # FOLDER
    "notify": ("notify.notification", "deliver"),  # -
    "metrics": ("metrics.endpoint", "show"),  # /run/gpuctl
}
"""The module of each command, in this package, and its function."""


def main() -> int:
    """Run one command and return its exit status.

    Only the command's module is imported: imports take most of the time when eight workers start
    at once on two cores.
    """
    command, folder, words = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    rename_process(command, str(folder.parent))
    module, function = COMMANDS[command]
    status: int = getattr(import_module(f"engine.agent.{module}"), function)(folder, *words)
    return status
