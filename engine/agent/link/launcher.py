"""The launcher of workers: a unit per node, over OpenSSH with the cluster's key."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Protocol

from engine.agent.link.ssh_multiplexing import (
    CONNECT_S,
    SSH,
    master_command,
    node_login,
    ssh_to,
)
from engine.agent.link.units import (
    CPU_SHARE,
    OPEN_FILES,
    STAYS_UP,
    STOP_GRACE_S,
    Agent,
    end_command,
    idle_command,
    unit_command,
)
from engine.agent.link.worker_link import BEGINS
from engine.agent.program import PROGRAM, receive_agent

if TYPE_CHECKING:
    from asyncio.subprocess import Process

HELD = 32 * 1024  # bytes; asyncio stops reading a pipe at twice this number of unread bytes
_POWER_OFF = (
    "systemd-run --no-block --quiet --collect --property=DefaultDependencies=no"
    " sh -c 'systemctl poweroff; sleep 60; systemctl poweroff -ff'"
)
"""Powers a machine off, by the kernel if the shutdown hangs for a minute in a driver or a mount: as
the end of a lease does (set_end.sh). The shutdown does not stop this unit."""
_REACHED = """echo '{"kind": "reached"}'"""


class Launcher(Protocol):
    """A launcher of workers that can also power nodes off. Workers reach the head at `address`."""

    address: str

    async def open(self, rank: int) -> Process:
        """Start a worker and return its process: control lines to stdin, events from stdout."""

    async def attach(self, rank: int) -> Process:
        """Connect to the worker that was started before, and return the connection's process.

        Its first line is an event `reached`. It ends without one if the node has no worker.
        """

    async def is_back(self, address: str) -> bool:
        """Return whether a node that was lost, and is the same machine, can start a worker."""

    def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
        """Use other addresses of the nodes from now on."""

    async def save(self, rank: int | None) -> Process:
        """Start saving.save on the node with this rank, on the head without one."""

    async def power_off(self) -> None:
        """Power off every node of the cluster, this one last."""


class Units:
    """A launcher of workers as units.

    `ips` are the addresses of the run's nodes in rank order. `cluster_ips` are the addresses of all
    nodes of the cluster; the first is this machine, the head, which the run may not use. What is
    left of a job has `grace_s` to end, and in a shutdown of its machine the job itself.
    """

    def __init__(
        self,
        folder: Path,
        agent: Path,
        ips: tuple[str, ...],
        cluster_ips: tuple[str, ...],
        grace_s: int = STOP_GRACE_S,
    ) -> None:
        self._folder, self._agent, self._grace_s = folder, agent, grace_s
        self._program = str(agent / PROGRAM)
        self._archive = agent.with_name(f"{agent.name}.pyz")
        self._ips, self._cluster_ips = ips, cluster_ips
        self.address = cluster_ips[0]

    async def open(self, rank: int) -> Process:
        """Start a worker on the node; send the agent before the control lines.

        The shell of another node first reports that it was reached: the supervisor retries only
        launches that failed before that. And no two units of one name run at a time.
        """
        if self._ips[rank] == self.address:
            return await self._execute(rank, self._unit(rank, sys.executable))
        data = self._archive.read_bytes()
        agent = receive_agent(str(self._agent), data)
        script = f"{_REACHED} && umask 022 && {agent} && {self._unit(rank, 'python3')}"
        return await self._execute(rank, script, data)

    async def attach(self, rank: int) -> Process:
        """Connect to the worker's socket on its node; at the worker's end, wait for its unit's.

        A machine that shuts down has no worker that goes on.
        """
        is_here = self._ips[rank] == self.address
        agent = Agent(sys.executable if is_here else "python3", self._program)
        # The end waits until every process of the unit has ended.
        command = (
            f"{STAYS_UP} || exit 1; {agent.call('attach', str(self._folder))}; code=$?;"
            f" test $code != 0 || {end_command(self._unit_name(rank), agent)}; exit $code"
        )
        return await self._execute(rank, command)

    async def is_back(self, address: str) -> bool:
        """Return whether the node answers, has a part of the run behind it, and runs none.

        A new machine in its place has no folder of this run: the client reports it when it is
        ready. A machine that shuts down may still answer.
        """
        python = sys.executable if address == self.address else "python3"
        idle = idle_command(f"gpuctl-run-{self._folder.name}-", Agent(python, self._program))
        command = f"test -d {shlex.quote(str(self._folder))} && {idle}"
        argv = ["sh", "-c", command]
        if address != self.address:
            argv = [*SSH, "-S", "none", node_login(address), command]
        process = await asyncio.create_subprocess_exec(
            *argv, stdin=DEVNULL, stdout=DEVNULL, stderr=DEVNULL
        )
        try:
            return await asyncio.wait_for(process.wait(), 2 * CONNECT_S) == 0
        except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
            return False
        finally:  # also if the run ends meanwhile
            if process.returncode is None:
                process.kill()
                await process.wait()

    def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
        """Use other addresses of the nodes from now on."""
        self._ips, self._cluster_ips = ips, cluster_ips

    async def save(self, rank: int | None) -> Process:
        """Start saving.save on the node with this rank, on this one without a rank."""
        if rank is None or self._ips[rank] == self.address:
            command = Agent(sys.executable, self._program).call("save", str(self._folder))
            return await self._spawn(["sh", "-c", f"exec {command}"])
        command = Agent("python3", self._program).call("save", str(self._folder))
        return await self._spawn(master_command(self._ips[rank], ssh_to(self._ips[rank], command)))

    async def power_off(self) -> None:
        """Power off the other nodes, then this one after their last answer or after 20 s."""
        others = self._cluster_ips[1:]
        processes = [
            await asyncio.create_subprocess_exec(*SSH, node_login(ip), _POWER_OFF, stdin=DEVNULL)
            for ip in others
        ]
        if processes:
            await asyncio.wait([asyncio.ensure_future(p.wait()) for p in processes], timeout=20)
        await (await asyncio.create_subprocess_exec("sh", "-c", _POWER_OFF)).wait()

    def _unit(self, rank: int, python: str) -> str:
        """Return the shell command that runs the worker as a unit, and waits for it."""
        properties = (
            "KillMode=control-group",  # setsid does not leave a cgroup
            f"TimeoutStopSec={self._grace_s}",
            "LimitMEMLOCK=infinity",  # RDMA pins memory; systemd sets the highest limit that it may
            f"LimitNOFILE={OPEN_FILES}",  # also for commands that enter the run
            "TasksMax=infinity",
            CPU_SHARE,
            "OOMPolicy=continue",  # the kernel kills the job; the worker must live to report it
        )
        agent = Agent(python, self._program)
        return unit_command(
            self._unit_name(rank), agent, agent.words("work", str(self._folder)), properties
        )

    def _unit_name(self, rank: int) -> str:
        return f"gpuctl-run-{self._folder.name}-{rank}.service"

    async def _execute(self, rank: int, script: str, data: bytes = b"") -> Process:
        """Start a shell with the script on the node; the script's stdin begins with the data.

        The script is no argument: a job may end all processes that have `python`, or its name,
        among their arguments. `head` reads exactly its bytes from the pipe.
        """
        ip, text = self._ips[rank], script.encode()
        command = f'eval "$(head -c {len(text)})"'
        argv = ["sh", "-c", command]
        if ip != self.address:  # ~/.bashrc there may print words without a line end
            argv = master_command(ip, ssh_to(ip, f"echo; echo {BEGINS} >&2; {command}"))
        process = await self._spawn(argv)
        assert process.stdin is not None
        process.stdin.write(text + data)
        return process

    async def _spawn(self, argv: list[str]) -> Process:
        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
