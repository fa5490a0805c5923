"""The supervisor's process: its journal, its socket, its launcher, and systemd."""

from __future__ import annotations

import asyncio
import os
import signal
import socket
from pathlib import Path

from engine.agent.budget import remove_old_runs
from engine.agent.control import JOURNAL, SOCKET, serve
from engine.agent.journal import Journal, Message
from engine.agent.launcher import Units
from engine.agent.supervisor import Supervisor


def supervise_run(folder: Path, run: Message, agent: Path) -> None:
    """Supervise the run to its end; `run` is `{"plan": …, "secrets": {name: value}}`."""
    asyncio.run(_supervise(folder, run, agent))


async def _supervise(folder: Path, run: Message, agent: Path) -> None:
    plan = run["plan"]
    remove_old_runs(folder)
    journal = Journal(folder / JOURNAL)
    ips = tuple(node["private_ip"] for node in plan["nodes"])
    units = Units(folder, agent, ips, tuple(plan["cluster_ips"]))
    supervisor = Supervisor(plan, run["secrets"], journal, units)
    loop = asyncio.get_running_loop()
    loop.add_signal_handler(signal.SIGTERM, supervisor.end)
    answers = {"stop": supervisor.stop, "ack": supervisor.acknowledge}
    server = await serve(folder, journal, answers)
    _notify_systemd("READY=1")
    await supervisor.run()
    await supervisor.power_off_unattended()
    server.close()
    (folder / SOCKET).unlink()
    journal.close()


def _notify_systemd(text: str) -> None:
    """Send one datagram to systemd's notification socket, if any: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if address:
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.sendto(text.encode(), address.replace("@", "\0", 1))
