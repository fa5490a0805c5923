"""The unit of a run's supervisor, and what a shutdown of the head ends after it.

A shutdown stops units in the opposite order of their start (systemd.unit(5)). The supervisor needs
the network to stop other nodes' jobs and to send notifications. A client needs its login to read
the run's end, whichever client it is and whenever it came: with pam_systemd each login is a unit
`session-N.scope`, which a shutdown would end at its beginning
(https://github.com/systemd/systemd/issues/2390, 2026-11-25).
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

from engine.agent.head.queue import Queue
from engine.agent.head.secret_store import PROPERTY, write_secrets
from engine.agent.journal.locks import create_folder
from engine.agent.journal.memory_folder import has_systemd
from engine.agent.journal.run_folders import mark_used
from engine.agent.journal.run_secrets_file import remove_handover, write_handover
from engine.agent.link.control import SOCKET
from engine.agent.link.units import CPU_SHARE, OPEN_FILES, Agent, Restart, start_until
from engine.agent.program import PROGRAM, this_file
from engine.contract.codec import from_json
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import BUSY, NO_PLAN

STOP_S = 35
"""The longest time in seconds that a shutdown waits for the jobs, beyond their `stop_grace`."""

_UNITS = Path("/run/systemd/system")
_RUNS = "gpuctl-runs.target"
_LOGINS = "session-.scope.d/gpuctl.conf"
"""A file that adds to the units of all logins, by the part of their names before the hyphen
(systemd.unit(5), since systemd 239)."""


def unit_name(folder: Path) -> str:
    """Return the name of the supervisor's unit."""
    return f"gpuctl-run-{folder.name}.service"


def start_unit(folder: Path, program: str, grace_s: int, units: Path = _UNITS) -> int:
    """Start the supervisor's unit, wait until it listens, and return 0, or its exit status.

    Jobs have `grace_s` to end. `units` is systemd's folder of units until the next boot.
    """
    supervise = Agent(sys.executable, program).words("supervise", str(folder))
    if not has_systemd():
        restart = Restart(never_after=(BUSY, NO_PLAN), stop_s=STOP_S + grace_s)
        return start_until(folder / SOCKET, unit_name(folder), supervise, restart)
    keep_logins(units)
    properties = (
        "Type=notify",
        "KillMode=mixed",  # SIGTERM to the supervisor alone: it needs its connections to the end
        PROPERTY,
        "Restart=on-failure",  # it takes the run up from the journal
        "RestartSec=1",
        f"RestartPreventExitStatus={BUSY} {NO_PLAN}",
        f"LimitNOFILE={OPEN_FILES}",
        "TasksMax=infinity",
        # https://systemd.io/NETWORK_ONLINE/, 2026-11-23
        f"After=network.target {_RUNS}",
        f"Wants={_RUNS}",
        CPU_SHARE,
        f"TimeoutStopSec={STOP_S + grace_s}",
    )
    return subprocess.run(
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={unit_name(folder)}",
            *(f"--property={text}" for text in properties),
            *supervise,
        ],
        check=False,
    ).returncode


def keep_logins(units: Path) -> None:
    """Make this machine keep its logins until all supervisors have ended; once after each boot."""
    if (units / _LOGINS).exists():
        return
    (units / _LOGINS).parent.mkdir(parents=True, exist_ok=True)
    (units / _RUNS).write_text(
        "[Unit]\nDescription=Runs of gpuctl: a shutdown ends logins after them\n", encoding="utf-8"
    )
    (units / _LOGINS).write_text(f"[Unit]\nBefore={_RUNS}\n", encoding="utf-8")
    # Logins that are there get it too, such as the one that starts this run.
    subprocess.run(["systemctl", "daemon-reload"], check=False)


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
        status = start_unit(folder, f"{this_file()}/{PROGRAM}", plan.stop_grace_s)
        if status == 0:
            return 0
        remove_handover(folder)
        busy = queue.runs_in_the_way(plan.node_names)
        if not busy:
            return status
    sys.stdout.write(json.dumps({"busy": busy}) + "\n")
    return BUSY
