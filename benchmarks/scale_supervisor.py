"""The supervisor's process of benchmarks/scale.py: the agent's own, with simulated nodes.

    python -m benchmarks.scale_supervisor FOLDER

FOLDER is a run's, next to `plan.json` and the socket `nodes.sock` of benchmarks/scale_nodes.py.
Nothing else of gpuctl is imported, so its size is that of a supervisor.
"""

from __future__ import annotations

import asyncio
import json
import sys
from asyncio.subprocess import Process
from pathlib import Path
from typing import cast

from benchmarks.worker_sockets import Pipes
from engine.agent.head.queue import Queue
from engine.agent.head.supervisor_process import supervise_run
from engine.agent.journal.locks import create_folder
from engine.agent.link.launcher import HELD
from engine.contract.codec import from_json
from engine.contract.plan import RunOrder

PLAN = "plan.json"
NODES = "nodes.sock"


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


def supervise(folder: Path) -> None:
    """Supervise the run to its end, as engine/agent/main.py does in the supervisor's unit."""
    order = from_json(RunOrder, json.loads((folder.parent / PLAN).read_text()))
    create_folder(folder, exist_ok=True)  # and hold it
    names = tuple(node.name for node in order.plan.nodes)
    assert Queue(folder.parent).enter(folder.name, names, may_wait=False)
    launcher = SimulatedNodes(folder.parent / NODES)
    supervise_run(folder, order.with_common_texts(), folder / "agent.pyz", launcher)


if __name__ == "__main__":
    supervise(Path(sys.argv[1]))
