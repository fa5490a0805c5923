"""The supervisor of a run in a storm: `python -m tests.storm.supervise FOLDER`, a process to kill.

It has the standard library and the agent alone, so that it starts quickly. The nodes are folders
of this machine, and each worker is a process.
"""

import asyncio
import json
import os
import sys
from asyncio.subprocess import PIPE, Process
from contextlib import suppress
from pathlib import Path

from engine.agent.head.run_state import journal_events
from engine.agent.head.supervisor import Supervisor
from engine.agent.head.supervisor_process import answers_of
from engine.agent.journal.journal import Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.link.control_server import serve
from engine.agent.link.launcher import HELD
from engine.agent.link.times import Times
from engine.contract.codec import from_json
from engine.contract.plan import LaunchPlan

GONE = "gone"
NODE = "GPUCTL_TEST_NODE"
"""The variable that names the node of an agent's process: its command line does not."""
PLAN = "plan.json"


def workers_of(node: Path) -> list[int]:
    """Return the processes of gpuctl's worker on the node: itself, and the one of heartbeats."""
    lines = _command_lines()
    workers = [
        pid for pid, words in lines.items() if b"work" in words[:4] and _node_of(pid) == str(node)
    ]
    return [*workers, *heartbeats_below(workers)]


def _node_of(pid: int) -> str:
    """Return the node of an agent's process, from the environment that its launcher gave it."""
    with suppress(OSError):  # it has ended
        for pair in Path(f"/proc/{pid}/environ").read_bytes().split(b"\0"):
            if pair.startswith(NODE.encode() + b"="):
                return pair.partition(b"=")[2].decode()
    return ""


def heartbeats_of(node: Path) -> list[int]:
    """Return the process that sends the worker's heartbeats, a child of the worker."""
    return heartbeats_below(workers_of(node))


def heartbeats_below(processes: list[int]) -> list[int]:
    """Return the processes of heartbeats that are children of these."""
    found = []
    for pid, words in _command_lines().items():
        if words[1:3] == [b"-IS", b"-c"] or words[:2] == [b"gpuctl-agent", b"heartbeats"]:
            with suppress(OSError):  # it has ended
                parent = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[1]
                found += [pid] if int(parent) in processes else []
    return found


def _command_lines() -> dict[int, list[bytes]]:
    """Return the command lines of this machine's processes, as words."""
    lines = {}
    for entry in Path("/proc").glob("[0-9]*/cmdline"):
        with suppress(OSError):  # it has ended
            lines[int(entry.parent.name)] = entry.read_bytes().split(b"\0")
    return lines


class Processes:
    """The launcher: node N is the folder `nodeN`, and has no worker while `nodeN/../gone-N` is."""

    address = "127.0.0.1"

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        nodes = json.loads((folder / PLAN).read_text())["nodes"]
        self._names = {node["private_ip"]: node["name"] for node in nodes}
        self._ips = [node["private_ip"] for node in nodes]

    async def open(self, rank: int) -> Process:
        return await self._spawn("work", rank)

    async def attach(self, rank: int) -> Process:
        return await self._spawn("attach", rank)

    async def _spawn(self, command: str, rank: int) -> Process:
        node = self._folder / self._names[self._ips[rank]]
        argv = [sys.executable, str(self._folder / "agent.pyz"), command, str(node)]
        if self._is_gone(node):
            argv = ["sh", "-c", "echo no route to host >&2; exit 255"]
        environment = {**os.environ, NODE: str(node)}
        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD, env=environment
        )

    def _is_gone(self, node: Path) -> bool:
        return (self._folder / f"{GONE}-{node.name}").exists()

    async def is_back(self, address: str) -> bool:
        node = self._folder / self._names[address]
        return node.exists() and not self._is_gone(node) and not workers_of(node)

    def replace_addresses(self, ips: tuple[str, ...], _: tuple[str, ...]) -> None:
        for before, after in zip(self._ips, ips, strict=True):
            self._names.setdefault(after, self._names[before])
        self._ips = list(ips)

    async def save(self, rank: int | None) -> Process:
        raise AssertionError

    async def power_off(self) -> None:
        raise AssertionError


async def supervise(folder: Path) -> None:
    """Supervise the run to its end, or take it up."""
    plan = from_json(LaunchPlan, json.loads((folder / PLAN).read_text()))
    journal = Journal(folder / JOURNAL)
    recorded = journal_events(folder / JOURNAL)
    times = Times(look_s=0.3, most_backoff_s=1)
    supervisor = Supervisor(plan, {}, journal, Processes(folder), recorded, times=times)
    server = await serve(folder, journal, answers_of(supervisor))
    if not supervisor.state.is_finished:
        await supervisor.run()
    server.close()
    journal.close()


if __name__ == "__main__":
    asyncio.run(supervise(Path(sys.argv[1])))
