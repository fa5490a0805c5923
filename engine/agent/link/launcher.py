"""The launcher of workers: a systemd unit per node, over OpenSSH with the cluster's key."""

from __future__ import annotations

import asyncio
import shlex
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Protocol

from engine.agent.link.ssh_multiplexing import CONNECT_S, SSH, master_command, ssh_to
from engine.agent.program import receive_agent

if TYPE_CHECKING:
    from asyncio.subprocess import Process

HELD = 32 * 1024  # bytes; asyncio stops reading a pipe at twice this number of unread bytes
STOP_GRACE_S = 10
UNIT_KILLED = 254  # exit status of `Launcher.open`'s process if a signal ended the worker
CPU_SHARE = "CPUWeight=100"
"""The property that makes the kernel share a node's processors between units, and not between
processes: on the head a job leaves the supervisors of other runs their part. 100 is the default
weight; systemd enables the CPU controller where a unit sets one ("Enabling and disabling
controllers", https://freedesktop.org/software/systemd/man/252/systemd.resource-control.html,
2026-11-23)."""
_POWER_OFF = (
    "systemd-run --no-block --quiet --collect --property=DefaultDependencies=no"
    " sh -c 'systemctl poweroff; sleep 60; systemctl poweroff -ff'"
)
"""Powers a machine off, by the kernel if the shutdown hangs for a minute in a driver or a mount: as
the end of a lease does (set_end.sh). The shutdown does not stop this unit."""
_REACHED = """echo '{"kind": "reached"}'"""


def _unit_script(unit: list[str]) -> str:
    """Return the shell command that runs the unit to its end.

    systemd-run ends with 255 if a signal ended the unit (EXIT_EXCEPTION), and ssh if its connection
    broke. The first becomes UNIT_KILLED.
    """
    return (
        f"{{ {shlex.join(unit)}; code=$?; test $code != 255 || code={UNIT_KILLED}; exit $code; }}"
    )


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
    """A launcher of workers as transient systemd units.

    `ips` are the addresses of the run's nodes in rank order. `cluster_ips` are the addresses of all
    nodes of the cluster; the first is this machine, the head, which the run may not use.
    """

    def __init__(
        self, folder: Path, agent: Path, ips: tuple[str, ...], cluster_ips: tuple[str, ...]
    ) -> None:
        self._folder, self._agent = folder, agent
        self._archive = agent.with_name(f"{agent.name}.pyz")
        self._ips, self._cluster_ips = ips, cluster_ips
        self.address = cluster_ips[0]

    async def open(self, rank: int) -> Process:
        """Start a worker on the node; send the agent before the control lines.

        The shell of another node first reports that it was reached: the supervisor retries only
        launches that failed before that. And systemd never starts two units of one name.
        """
        if self._ips[rank] == self.address:
            return await self._spawn(["sh", "-c", _unit_script(self._unit(rank, sys.executable))])
        data = self._archive.read_bytes()
        # `head` reads exactly these bytes from the pipe; the rest is the worker's stdin. The script
        # is no argument: a job may end all processes with `python` among their arguments.
        script = (
            f"umask 022 && {receive_agent(str(self._agent), data)}"
            f" && {_unit_script(self._unit(rank, 'python3'))}"
        ).encode()
        command = f'{_REACHED} && eval "$(head -c {len(script)})"'
        process = await self._spawn(
            master_command(self._ips[rank], ssh_to(self._ips[rank], command))
        )
        assert process.stdin is not None
        process.stdin.write(script + data)
        return process

    async def attach(self, rank: int) -> Process:
        """Connect to the worker's socket on its node; at the worker's end, wait for its unit's."""
        is_here = self._ips[rank] == self.address
        python = sys.executable if is_here else "python3"
        program = str(self._agent / "__main__.py")
        attach = shlex.join([python, "-IS", program, "attach", str(self._folder)])
        # `stop` waits until every process of the unit has ended.
        command = (
            f"{attach}; code=$?; test $code != 0 ||"
            f" systemctl stop --quiet {self._unit_name(rank)} 2> /dev/null; exit $code"
        )
        if is_here:
            return await self._spawn(["sh", "-c", command])
        ip = self._ips[rank]
        return await self._spawn(master_command(ip, ssh_to(ip, command)))

    async def is_back(self, address: str) -> bool:
        """Return whether the node answers, has a part of the run behind it, and runs none.

        A new machine in its place has no folder of this run: the client reports it when it is
        ready. A machine that shuts down may still answer.
        """
        folder = shlex.quote(str(self._folder))
        command = (
            f'test -d {folder} && test "$(systemctl is-system-running)" != stopping'
            f" && ! systemctl is-active --quiet 'gpuctl-run-{self._folder.name}-*.service'"
        )
        argv = ["sh", "-c", command]
        if address != self.address:
            argv = [*SSH, "-S", "none", f"root@{address}", command]
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
        program, folder = str(self._agent / "__main__.py"), str(self._folder)
        if rank is None or self._ips[rank] == self.address:
            return await self._spawn([sys.executable, "-IS", program, "save", folder])
        ip, words = self._ips[rank], ["python3", "-IS", program, "save", folder]
        return await self._spawn(master_command(ip, ssh_to(ip, shlex.join(words))))

    async def power_off(self) -> None:
        """Power off the other nodes, then this one after their last answer or after 20 s."""
        others = self._cluster_ips[1:]
        processes = [
            await asyncio.create_subprocess_exec(*SSH, f"root@{ip}", _POWER_OFF, stdin=DEVNULL)
            for ip in others
        ]
        if processes:
            await asyncio.wait([asyncio.ensure_future(p.wait()) for p in processes], timeout=20)
        await (await asyncio.create_subprocess_exec("sh", "-c", _POWER_OFF)).wait()

    def _unit(self, rank: int, python: str) -> list[str]:
        """Return systemd-run's command line: it passes pipes through, and waits for the unit."""
        properties = (
            "KillMode=control-group",  # setsid does not leave a cgroup
            f"TimeoutStopSec={STOP_GRACE_S}",
            "LimitMEMLOCK=infinity",  # RDMA pins memory; systemd sets the highest limit that it may
            "LimitNOFILE=65536",  # for the sockets of many ranks and of commands that enter the run
            "TasksMax=infinity",
            CPU_SHARE,
            "OOMPolicy=continue",  # the kernel kills the job; the worker must live to report it
        )
        options = [f"--property={text}" for text in properties]
        unit = f"--unit={self._unit_name(rank)}"
        program = str(self._agent / "__main__.py")
        head = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", unit]
        return [*head, *options, python, "-IS", program, "work", str(self._folder)]

    def _unit_name(self, rank: int) -> str:
        return f"gpuctl-run-{self._folder.name}-{rank}.service"

    async def _spawn(self, argv: list[str]) -> Process:
        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
