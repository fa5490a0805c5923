"""How a worker gets onto a node: a systemd unit of its own, over OpenSSH with the cluster's key."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Protocol

from engine.agent.masters import MULTIPLEXED, with_master

if TYPE_CHECKING:
    from asyncio.subprocess import Process

HELD = 32 * 1024  # bytes; of twice as many that wait to be read, no more is taken from a pipe
STOP_GRACE_S = 10
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_REACHED = """echo '{"kind": "reached"}'"""


def ssh_to(ip: str, command: str) -> list[str]:
    """The command line that runs a shell command as root on another node of the cluster.

    Without ssh's own keepalive: the heartbeats tell that a node does not answer, and say so.
    """
    return [*_SSH, *MULTIPLEXED, f"root@{ip}", command]


def receive_agent(agent: str, data: bytes) -> str:
    """Return the shell command that takes the agent's archive, `data`, from its stdin.

    It unpacks it to a folder, if every byte has come as it was sent. Unpacked, because Python keeps
    compiled modules beside those of a folder, and compiles those of an archive at each start. An
    agent that is there already stays.
    """
    folder, part = shlex.quote(agent), shlex.quote(agent) + ".$$"
    size, digest = len(data), hashlib.sha256(data).hexdigest()
    return (
        f"if [ -d {folder} ]; then head -c {size} > /dev/null; else"
        f" mkdir -p {shlex.quote(str(Path(agent).parent))} && head -c {size} > {part}.pyz"
        f" && {{ echo '{digest}  '{part}.pyz | sha256sum --check --status"
        f" || {{ rm -f {part}.pyz; echo 'the agent came with other bytes' >&2; exit 1; }}; }}"
        f" && python3 -IS -m zipfile -e {part}.pyz {part} && rm -f {part}.pyz"
        f" && {{ mv -T {part} {folder} 2> /dev/null || rm -rf {part}; }}; fi"
    )


class Launcher(Protocol):
    """Starts workers and powers nodes off. Workers reach the supervisor at `address`."""

    address: str

    async def open(self, rank: int) -> Process:
        """A worker's process: control lines go to its stdin, events come from its stdout."""

    async def power_off(self) -> None:
        """Every node of the cluster is told to power off, this one last."""


class Units:
    """Workers as transient systemd units.

    `ips` are the run's nodes in rank order, the first one is this machine; `cluster_ips` are all
    nodes of the cluster, the run's among them.
    """

    def __init__(
        self, folder: Path, agent: Path, ips: tuple[str, ...], cluster_ips: tuple[str, ...]
    ) -> None:
        self._folder, self._agent = folder, agent
        self._archive = agent.with_name(f"{agent.name}.pyz")
        self._ips, self._cluster_ips = ips, cluster_ips
        self.address = ips[0]

    async def open(self, rank: int) -> Process:
        """A worker on the node; the agent itself travels in front of the control lines.

        Another node's shell first says that it was reached, so that a launch that failed before
        can be told from one that may have begun. The unit's name takes care of the rest: systemd
        starts no second one of it.
        """
        if rank == 0:
            return await self._spawn(self._unit(rank, sys.executable))
        data = self._archive.read_bytes()
        # head reads exactly the agent's bytes from the pipe; what follows is the worker's stdin.
        command = (
            f"{_REACHED} && umask 022 && {receive_agent(str(self._agent), data)}"
            f" && exec {shlex.join(self._unit(rank, 'python3'))}"
        )
        process = await self._spawn(with_master(self._ips[rank], ssh_to(self._ips[rank], command)))
        assert process.stdin is not None
        process.stdin.write(data)
        return process

    async def power_off(self) -> None:
        """Workers first: this machine ends with the last answer, or after 20 s."""
        import asyncio

        others = [ip for ip in self._cluster_ips if ip != self._ips[0]]
        processes = [
            await asyncio.create_subprocess_exec(
                *_SSH, f"root@{ip}", "systemctl poweroff", stdin=DEVNULL
            )
            for ip in others
        ]
        if processes:
            await asyncio.wait([asyncio.ensure_future(p.wait()) for p in processes], timeout=20)
        await (await asyncio.create_subprocess_exec("systemctl", "poweroff")).wait()

    def _unit(self, rank: int, python: str) -> list[str]:
        """systemd-run's command line: pipes passed through, gone when its processes are."""
        properties = (
            "KillMode=control-group",  # setsid does not leave a cgroup
            f"TimeoutStopSec={STOP_GRACE_S}",
            "LimitMEMLOCK=infinity",  # RDMA pins memory; systemd takes the nearest it may set
            "LimitNOFILE=65536",  # sockets of many ranks, and of commands that enter the run
            "TasksMax=infinity",
            "OOMPolicy=continue",  # the job dies of it, the worker lives to tell
        )
        options = [f"--property={text}" for text in properties]
        unit = f"--unit=gpuctl-run-{self._folder.name}-{rank}"
        program = str(self._agent / "__main__.py")
        head = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", unit]
        return [*head, *options, python, "-IS", program, "work", str(self._folder)]

    async def _spawn(self, argv: list[str]) -> Process:
        import asyncio  # late: workers use this module too, for `ssh_to`

        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
