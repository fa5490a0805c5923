"""The agent's commands. The client calls start, follow, send, receive, outputs; the agent calls
supervise and work, and receive on other nodes.
"""

from __future__ import annotations

import fcntl
import json
import os
import sys
from pathlib import Path

# Each command imports only what it uses: imports take most of the time when eight workers start at
# once on two cores.

BUSY = 3  # exit status of start: another run is on this cluster
HANDOVER = Path("/run/gpuctl")
"""The folder, in memory, where `start` leaves a run until its supervisor reads and deletes it."""
PROGRAM = "__main__.py"
LOCK = "lock"  # in the folder of all runs; the supervisor holds it, its text is the run's id


def main() -> int:
    """Run one command and return its exit status.

    start FOLDER | supervise FOLDER | work FOLDER | follow FOLDER --from BYTE | send FOLDER WORD
    where FOLDER is /var/lib/gpuctl/runs/<run-id>; receive RUNS, outputs WORKING_FOLDER.
    """
    command, folder, rest = sys.argv[1], Path(sys.argv[2]), sys.argv[3:]
    if command == "start":
        return start(folder)
    if command == "supervise":
        return supervise(folder)
    if command in ("follow", "send"):
        from engine.agent.control import call, follow

        return follow(folder, int(rest[1])) if command == "follow" else call(folder, rest[0])
    return _serve(command, folder)


def _serve(command: str, folder: Path) -> int:
    """Run a command that every node has, also a worker's."""
    if command == "work":
        from engine.agent.worker import work

        return work(folder)
    if command == "receive":
        from engine.agent.trees import receive

        return receive(folder, _this_file())
    from engine.agent.outputs import send

    return send(folder)


def start(folder: Path) -> int:
    """Start the run from stdin, `{"plan": …, "secrets": {name: value}}`, in its own unit.

    Return 0, or BUSY with `{"busy": RUN}` on stdout if another run holds the cluster.
    """
    run = sys.stdin.buffer.read()
    holder = _holder(folder.parent)
    if holder is None:
        folder.mkdir(mode=0o755, parents=True)
        # Clients must call the agent that runs, also after an upgrade of the client.
        (folder / "agent.pyz").symlink_to(_this_file())
        handed = _handover_path(folder)
        handed.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        _write_private(handed, run)
        try:
            status = _start_unit(folder)
        finally:
            handed.unlink(missing_ok=True)
        if status == 0:
            return 0
        holder = _holder(folder.parent)
        if holder is None:
            return status
    sys.stdout.write(json.dumps({"busy": holder}) + "\n")
    return BUSY


def supervise(folder: Path) -> int:
    """Supervise the run to its end; return 0, or BUSY if another run holds the cluster."""
    from engine.agent.supervising import supervise_run

    handed = _handover_path(folder)
    run = json.loads(handed.read_text(encoding="utf-8"))
    handed.unlink()
    lock = _take_lock(folder.parent, folder.name)
    if lock is None:
        return BUSY
    try:
        supervise_run(folder, run, _this_file())
    finally:
        os.close(lock)
    return 0


def _handover_path(folder: Path) -> Path:
    return HANDOVER / f"{folder.name}.json"


def _start_unit(folder: Path) -> int:
    """Start the supervisor's unit, wait until it listens, and return systemd-run's exit status."""
    import subprocess

    properties = (
        "Type=notify",
        "KillMode=control-group",
        "LimitNOFILE=65536",  # three pipes per node
        "TasksMax=infinity",
        "TimeoutStopSec=45",  # the longest time that a shutdown waits for the jobs to end
    )
    return subprocess.run(
        [
            *("systemd-run", "--quiet", "--collect", f"--unit=gpuctl-run-{folder.name}"),
            *(f"--property={text}" for text in properties),
            *(sys.executable, "-IS", f"{_this_file()}/{PROGRAM}", "supervise", str(folder)),
        ],
        check=False,
    ).returncode


def _this_file() -> Path:
    """Return the agent's folder, or its zip application."""
    path = Path(sys.argv[0]).resolve()
    return path.parent if path.name == PROGRAM else path


def _take_lock(runs: Path, run_id: str) -> int | None:
    """Return a descriptor that holds the cluster for this run; None if another run holds it."""
    descriptor = os.open(runs / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        os.close(descriptor)
        return None
    os.ftruncate(descriptor, 0)
    os.write(descriptor, run_id.encode())
    return descriptor


def _holder(runs: Path) -> str | None:
    """Return the id of the run that holds the cluster, or None."""
    runs.mkdir(mode=0o755, parents=True, exist_ok=True)
    descriptor = os.open(runs / LOCK, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return os.read(descriptor, 200).decode() or "another run"
    finally:
        os.close(descriptor)
    return None


def _write_private(path: Path, data: bytes) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(data)
