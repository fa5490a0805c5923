"""The agent's commands. The client calls start, follow, send; the agent calls supervise, work."""

from __future__ import annotations

import argparse
import asyncio
import fcntl
import json
import os
import signal
import socket
import subprocess
import sys
from pathlib import Path

from engine.agent.control import JOURNAL, SOCKET, call, follow, serve
from engine.agent.journal import Journal, Message
from engine.agent.launcher import Units
from engine.agent.supervisor import Supervisor
from engine.agent.worker import work

BUSY = 3  # exit status of start: another run is on this cluster
HANDED = Path("/run/gpuctl")
"""Where `start` hands a run over to its supervisor: in memory, for the moment until it is read."""
LOCK = "lock"  # beside the runs' folders; held by a supervisor, has its run's id


def main() -> int:
    """The command's exit status."""
    parser = argparse.ArgumentParser(prog="gpuctl-agent")
    parser.add_argument("command", choices=["start", "supervise", "work", "follow", "send"])
    parser.add_argument("folder", type=Path, help="/var/lib/gpuctl/runs/<run-id>")
    parser.add_argument("word", nargs="?", choices=["stop", "ack"])
    parser.add_argument("--from", dest="offset", type=int, default=0)
    options = parser.parse_args()
    folder: Path = options.folder
    if options.command == "start":
        return start(folder)
    if options.command == "supervise":
        return supervise(folder)
    if options.command == "work":
        return work(folder)
    if options.command == "follow":
        return follow(folder, options.offset)
    return call(folder, options.word)


def start(folder: Path) -> int:
    """The run on stdin, `{"plan": …, "secrets": {name: value}}`, is under way in a unit of its own.

    BUSY, with `{"busy": RUN}` on stdout, where another run holds the cluster.
    """
    run = sys.stdin.buffer.read()
    holder = _holder(folder.parent)
    if holder is None:
        folder.mkdir(mode=0o755, parents=True)
        # Whoever follows talks to the agent that runs, also after an upgrade of the client.
        (folder / "agent.pyz").symlink_to(_this_file())
        handed = _handed(folder)
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
    """The run is over and its end is in the journal."""
    handed = _handed(folder)
    run: Message = json.loads(handed.read_text(encoding="utf-8"))
    handed.unlink()
    lock = _take_lock(folder.parent, folder.name)
    if lock is None:
        return BUSY
    try:
        asyncio.run(_supervise(folder, run, _this_file()))
    finally:
        os.close(lock)
    return 0


def _handed(folder: Path) -> Path:
    return HANDED / f"{folder.name}.json"


async def _supervise(folder: Path, run: Message, agent: Path) -> None:
    plan = run["plan"]
    journal = Journal(folder / JOURNAL)
    ips = tuple(node["private_ip"] for node in plan["nodes"])
    units = Units(folder, agent, ips, tuple(plan["cluster_ips"]))
    supervisor = Supervisor(plan, run["secrets"], journal, units)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, supervisor.end)
    answers = {"stop": supervisor.stop, "ack": supervisor.acknowledge}
    server = await serve(folder, journal, answers)
    _tell_systemd("READY=1")
    await supervisor.run()
    await supervisor.power_off_unattended()
    server.close()
    (folder / SOCKET).unlink()
    journal.close()


def _start_unit(folder: Path) -> int:
    """systemd-run's exit status; with Type=notify it returns when the supervisor listens."""
    properties = (
        "Type=notify",
        "KillMode=control-group",
        "LimitNOFILE=65536",  # three pipes per node
        "TasksMax=infinity",
        "TimeoutStopSec=45",  # a machine that shuts down waits for the jobs to end, no longer
    )
    return subprocess.run(
        [
            *("systemd-run", "--quiet", "--collect", f"--unit=gpuctl-run-{folder.name}"),
            *(f"--property={text}" for text in properties),
            *(sys.executable, str(_this_file()), "supervise", str(folder)),
        ],
        check=False,
    ).returncode


def _this_file() -> Path:
    """The agent's own zip application."""
    return Path(sys.argv[0]).resolve()


def _take_lock(runs: Path, run_id: str) -> int | None:
    """A descriptor that holds the cluster for this run, or None where another run has it."""
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
    """The run that holds the cluster, or None."""
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


def _tell_systemd(text: str) -> None:
    """sd_notify(3): one datagram to the socket that systemd named, if any."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.sendto(text.encode(), address.replace("@", "\0", 1))
