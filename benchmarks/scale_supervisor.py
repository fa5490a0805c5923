"""The supervisor's process of benchmarks/scale.py: the agent's own code, with simulated nodes.

    python -m benchmarks.scale_supervisor FOLDER

FOLDER has `plan.json` and the socket `nodes.sock` of benchmarks/scale_nodes.py. Nothing else of
gpuctl is imported, so its size is that of a supervisor.
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from asyncio.subprocess import Process
from pathlib import Path
from typing import cast

from benchmarks.worker_sockets import Pipes
from engine.agent.head.run_state import journal_events
from engine.agent.head.supervisor import Supervisor
from engine.agent.head.supervisor_process import answers_of
from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.link.control import SOCKET, serve
from engine.agent.link.launcher import HELD
from engine.contract.codec import from_json
from engine.contract.plan import LaunchPlan

NODES = "nodes.sock"
READY = "ready"
"""A file in the folder; it has the seconds that a supervisor took to read its journal."""


class SimulatedNodes:
    """Connects to simulated nodes in place of ssh."""

    address = "127.0.0.1"

    def __init__(self, path: Path) -> None:
        self._path = path

    async def open(self, rank: int) -> Process:
        """Launch the worker of the node."""
        return await self._connect(rank, "open")

    async def attach(self, rank: int) -> Process:
        """Connect to the worker that an earlier supervisor launched."""
        return await self._connect(rank, "attach")

    async def _connect(self, rank: int, how: str) -> Process:
        reader, writer = await asyncio.open_unix_connection(self._path, limit=HELD)
        writer.write(f"{how} {rank}\n".encode())
        return cast(Process, Pipes(reader, writer))

    async def is_back(self, address: str) -> bool:
        """Return whether the lost node answers: simulated ones are back at once."""
        return True

    def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
        """Use other addresses from now on; nobody makes simulated nodes again."""
        return  # a supervisor says its own at the start of each attempt

    async def save(self, rank: int | None) -> Process:
        """Fail: no run of these ends unattended."""
        raise AssertionError("the plan says keep")

    async def power_off(self) -> None:
        """Power the nodes off."""
        raise AssertionError("the plan says keep")


async def supervise(folder: Path) -> None:
    """Supervise the run to its end, as engine/agent/head/supervisor_process.py does."""
    plan = from_json(LaunchPlan, json.loads((folder / "plan.json").read_text()))
    journal = Journal(folder / JOURNAL)
    began = time.monotonic()
    recorded = journal_events(folder / JOURNAL)
    supervisor = Supervisor(plan, {}, journal, SimulatedNodes(folder / NODES), recorded)
    (folder / READY).write_text(str(time.monotonic() - began))
    server = await serve(folder, journal, answers_of(supervisor))
    await supervisor.run()
    server.close()
    (folder / SOCKET).unlink()
    journal.close()


if __name__ == "__main__":
    asyncio.run(supervise(Path(sys.argv[1])))
