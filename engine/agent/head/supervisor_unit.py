"""The systemd unit of a run's supervisor, and what a shutdown of the head ends after it.

A shutdown stops units in the opposite order of their start (systemd.unit(5)). The supervisor needs
the network to stop other nodes' jobs and to send notifications. A client needs its login to read
the run's end, whichever client it is and whenever it came: with pam_systemd each login is a unit
`session-N.scope`, which a shutdown would end at its beginning
(https://github.com/systemd/systemd/issues/2390, 2026-11-25).
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

from engine.agent.head.secret_store import PROPERTY
from engine.agent.link.launcher import CPU_SHARE
from engine.contract.exit_status import BUSY, NO_PLAN

STOP_S = 45
"""The longest time in seconds that a shutdown waits for the jobs to end."""

_UNITS = Path("/run/systemd/system")
_RUNS = "gpuctl-runs.target"
_LOGINS = "session-.scope.d/gpuctl.conf"
"""A file that adds to the units of all logins, by the part of their names before the hyphen
(systemd.unit(5), since systemd 239)."""


def unit_name(folder: Path) -> str:
    """Return the name of the supervisor's unit."""
    return f"gpuctl-run-{folder.name}.service"


def start_unit(folder: Path, program: str, units: Path = _UNITS) -> int:
    """Start the supervisor's unit, wait until it listens, and return systemd-run's exit status.

    `units` is systemd's folder of units until the next boot.
    """
    keep_logins(units)
    properties = (
        "Type=notify",
        "KillMode=mixed",  # SIGTERM to the supervisor alone: it needs its connections to the end
        PROPERTY,
        "Restart=on-failure",  # it takes the run up from the journal
        "RestartSec=1",
        f"RestartPreventExitStatus={BUSY} {NO_PLAN}",
        "LimitNOFILE=65536",  # three pipes per node
        "TasksMax=infinity",
        # https://systemd.io/NETWORK_ONLINE/, 2026-11-23
        f"After=network.target {_RUNS}",
        f"Wants={_RUNS}",
        CPU_SHARE,
        f"TimeoutStopSec={STOP_S}",
    )
    return subprocess.run(
        [
            "systemd-run",
            "--quiet",
            "--collect",
            f"--unit={unit_name(folder)}",
            *(f"--property={text}" for text in properties),
            sys.executable,
            "-IS",
            program,
            "supervise",
            str(folder),
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
