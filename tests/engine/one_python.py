"""Carries out a plan with the supervisor and the workers of the Python that runs this file.

`PYTHON one_python.py AGENT FOLDER` reads the plan from stdin and prints the verdict. It needs no
more than the agent: the standard library, Python 3.9.
"""

from __future__ import annotations

import asyncio
import json
import socket
import sys
import zipfile
from asyncio.subprocess import PIPE, Process
from pathlib import Path

if sys.implementation.name == "pypy":
    socket.__dict__.setdefault("SO_PRIORITY", 12)  # of CPython, which PyPy does not have


class Processes:
    """Workers as plain processes of this Python."""

    address = "127.0.0.1"

    def __init__(self, agent: str, folder: Path) -> None:
        self._agent, self._folder = agent, folder

    async def open(self, rank: int) -> Process:
        """Start the worker of the rank."""
        argv = (sys.executable, __file__, self._agent, "work", str(self._folder / f"node{rank}"))
        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=2**24
        )

    async def attach(self, rank: int) -> Process:
        """Fail: no supervisor of these runs is killed."""
        raise OSError("nothing to attach to")

    async def is_back(self, address: str) -> bool:
        """Do nothing: no node is lost."""
        raise AssertionError("the plan has no retry")

    def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
        """Do nothing: workers are processes of this machine."""

    async def save(self, rank: int | None) -> Process:
        """Fail: no run of these ends unattended."""
        raise AssertionError

    async def power_off(self) -> None:
        """Do nothing: this machine stays on."""


async def supervise(agent: str, folder: Path) -> None:
    """Import all of the agent, carry the plan out and print the verdict.

    As in the agent, all of asyncio is made within the loop, which Python 3.9 needs.
    """
    with zipfile.ZipFile(agent) as archive:
        empty = {"__main__.py", "config/__init__.py", "engine/__init__.py"}
        modules = sorted(set(archive.namelist()) - empty)
    for module in modules:
        __import__(module[:-3].replace("/", "."))
    from engine.agent.head.supervisor import Supervisor
    from engine.agent.journal.journal import Journal
    from engine.contract.codec import from_json
    from engine.contract.plan import LaunchPlan

    plan = from_json(LaunchPlan, json.load(sys.stdin))
    workers = Processes(agent, folder)
    supervisor = Supervisor(plan, {}, Journal(folder / "journal"), workers)
    verdict = await supervisor.run()
    facts = {"status": verdict.status, "exit_code": verdict.exit_code, "modules": len(modules)}
    sys.stdout.write(
        json.dumps({**facts, "reason": verdict.reason, "python": list(sys.version_info[:2])}) + "\n"
    )


if __name__ == "__main__":
    sys.path.insert(0, sys.argv[1])
    if sys.argv[2] == "work":
        from engine.agent.main import main

        del sys.argv[1]
        sys.exit(main())
    asyncio.run(supervise(sys.argv[1], Path(sys.argv[2])))
