"""The launcher of workers: a systemd unit per node, over OpenSSH with the cluster's key."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path
from subprocess import DEVNULL, PIPE
from typing import TYPE_CHECKING, Protocol

from engine.agent.masters import MASTER_OPTIONS, master_command

if TYPE_CHECKING:
    from asyncio.subprocess import Process

HELD = 32 * 1024  # bytes; asyncio stops reading a pipe at twice this number of unread bytes
STOP_GRACE_S = 10
_SSH = ("ssh", "-o", "BatchMode=yes", "-o", "ConnectTimeout=10")
_REACHED = """echo '{"kind": "reached"}'"""


def ssh_to(ip: str, command: str) -> list[str]:
    """Return the command line that runs a shell command as root on another node of the cluster.

    It does not use ssh's keepalive, because the heartbeats detect nodes that do not answer.
    """
    return [*_SSH, *MASTER_OPTIONS, f"root@{ip}", command]


def receive_agent(agent: str, data: bytes) -> str:
    """Return the shell command that reads the agent's archive, `data`, from stdin and unpacks it.

    It checks the archive's checksum. It unpacks, because Python stores compiled modules next to
    modules in a folder, but compiles those of an archive at each start. An agent that exists
    already is not changed.
    """
    folder, part = shlex.quote(agent), shlex.quote(agent) + ".$$"
    size, digest = len(data), hashlib.sha256(data).hexdigest()
    return (
        f"if [ -d {folder} ]; then head -c {size} > /dev/null; else"
        f" mkdir -p {shlex.quote(str(Path(agent).parent))} && head -c {size} > {part}.pyz"
        f" && {{ echo '{digest}  '{part}.pyz | sha256sum --check --status"
        f" || {{ rm -f {part}.pyz; echo 'the agent has a wrong checksum' >&2; exit 1; }}; }}"
        f" && python3 -IS -m zipfile -e {part}.pyz {part} && rm -f {part}.pyz"
        f" && {{ mv -T {part} {folder} 2> /dev/null || rm -rf {part}; }}; fi"
    )


class Launcher(Protocol):
    """A launcher of workers that can also power nodes off. Workers reach the head at `address`."""

    address: str

    async def open(self, rank: int) -> Process:
        """Start a worker and return its process: control lines to stdin, events from stdout."""

    async def power_off(self) -> None:
        """Power off every node of the cluster, this one last."""


class Units:
    """A launcher of workers as transient systemd units.

    `ips` are the addresses of the run's nodes in rank order; the first is this machine.
    `cluster_ips` are the addresses of all nodes of the cluster.
    """

    def __init__(
        self, folder: Path, agent: Path, ips: tuple[str, ...], cluster_ips: tuple[str, ...]
    ) -> None:
        self._folder, self._agent = folder, agent
        self._archive = agent.with_name(f"{agent.name}.pyz")
        self._ips, self._cluster_ips = ips, cluster_ips
        self.address = ips[0]

    async def open(self, rank: int) -> Process:
        """Start a worker on the node; send the agent before the control lines.

        The shell of another node first reports that it was reached: the supervisor retries only
        launches that failed before that. And systemd never starts two units of one name.
        """
        if rank == 0:
            return await self._spawn(self._unit(rank, sys.executable))
        data = self._archive.read_bytes()
        # `head` reads exactly the agent's bytes from the pipe; the rest is the worker's stdin.
        command = (
            f"{_REACHED} && umask 022 && {receive_agent(str(self._agent), data)}"
            f" && exec {shlex.join(self._unit(rank, 'python3'))}"
        )
        process = await self._spawn(
            master_command(self._ips[rank], ssh_to(self._ips[rank], command))
        )
        assert process.stdin is not None
        process.stdin.write(data)
        return process

    async def power_off(self) -> None:
        """Power off the other nodes, then this one after their last answer or after 20 s."""
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
        """Return systemd-run's command line: it passes pipes through, and waits for the unit."""
        properties = (
            "KillMode=control-group",  # setsid does not leave a cgroup
            f"TimeoutStopSec={STOP_GRACE_S}",
            "LimitMEMLOCK=infinity",  # RDMA pins memory; systemd sets the highest limit that it may
            "LimitNOFILE=65536",  # for the sockets of many ranks and of commands that enter the run
            "TasksMax=infinity",
            "OOMPolicy=continue",  # the kernel kills the job; the worker must live to report it
        )
        options = [f"--property={text}" for text in properties]
        unit = f"--unit=gpuctl-run-{self._folder.name}-{rank}"
        program = str(self._agent / "__main__.py")
        head = ["systemd-run", "--quiet", "--pipe", "--wait", "--collect", unit]
        return [*head, *options, python, "-IS", program, "work", str(self._folder)]

    async def _spawn(self, argv: list[str]) -> Process:
        import asyncio  # here: workers import this module too, for `ssh_to`

        return await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
