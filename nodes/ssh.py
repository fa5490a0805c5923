"""Commands and files on nodes: one ssh connection to the bastion, nodes tunnelled through it.

Without a bastion each node is reached by itself, by its address or through a command.

Nothing of the user's ssh set-up takes part: no agent, no ~/.ssh/config, no passwords, no
known_hosts but the cluster's own, in which every host key was pinned before the first connection.
"""

import asyncio
import os
import shlex
import uuid
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import asyncssh

from config.errors import NodeError
from nodes.inventory import Bastion, Inventory, Node
from nodes.proxy import Proxy

CONNECT_TIMEOUT_S = 30
KEEPALIVE_S = 15
"""With three missed answers a dead connection is noticed within a minute."""


@dataclass(frozen=True)
class Completed:
    """A command that ended; `exit_status` is 128 + N where signal N ended it."""

    exit_status: int
    stdout: str
    stderr: str


class Unreachable(NodeError):
    """A machine does not answer, or the connection to it was lost."""


class Connections:
    """Ssh connections to a cluster's nodes, each opened when first used and again when lost."""

    def __init__(self, inventory: Inventory, bastion: asyncssh.SSHClientConnection | None) -> None:
        self._inventory = inventory
        self._bastion = bastion
        self._locks: dict[str, asyncio.Lock] = {}
        self._nodes: dict[str, asyncssh.SSHClientConnection] = {}
        self._proxies: dict[str, Proxy] = {}

    async def run(
        self,
        node: Node,
        command: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  the remote command is bounded, and named
    ) -> Completed:
        """The command has ended on `node`, whatever its exit status.

        `command` goes to the login shell of the node's user; `stdin` is all of its input. Raises
        NodeError when the node cannot be reached or `timeout` seconds passed.
        """
        connection = await self._connection(node)
        with ssh_errors(_where(node), timeout):
            async with asyncio.timeout(timeout):
                done = await connection.run(
                    command, **_input(stdin), encoding="utf-8", errors="replace"
                )
        return Completed(_exit_status(done, node), str(done.stdout), str(done.stderr))

    async def lines(
        self, node: Node, command: str, *, stdin: str | None = None
    ) -> AsyncGenerator[str, None]:
        """Lines of the command's standard output as they come, without their ends.

        `stdin` is all of its input. Raises NodeError for an exit status other than 0 (with the
        last line of standard error) and for a lost connection.
        """
        connection = await self._connection(node)
        with ssh_errors(_where(node)):
            process = await connection.create_process(
                command, **_input(stdin), encoding="utf-8", errors="replace"
            )
            complaints: deque[str] = deque(maxlen=20)
            drained = asyncio.create_task(_keep_last(process.stderr, complaints))
            try:
                # At the end asyncssh may give one empty string, which is no line.
                while line := await process.stdout.readline():
                    yield line.rstrip("\r\n")
                done = await process.wait()
                await drained
            finally:
                drained.cancel()
                process.close()
        status = _exit_status(done, node)
        if status != 0:
            last = complaints[-1] if complaints else "it said nothing on standard error"
            raise NodeError(
                f"{_where(node)}: `{_first_line(command)}` exited with {status}: {last}",
                f"look at it with `gpuctl ssh {self._inventory.cluster} {node.name}`",
            )

    async def put(self, node: Node, data: bytes, path: str, mode: int = 0o600) -> None:
        """The file `path` on `node` has exactly `data` and `mode`, whole or not at all.

        Missing folders are made. The data travels as standard input: it is in no argument list.
        """
        connection = await self._connection(node)
        final, part = shlex.quote(path), shlex.quote(f"{path}.{uuid.uuid4().hex[:8]}")
        # A connection that breaks ends cat's input early: only the full length is moved in place.
        command = (
            f"umask 077; mkdir -p {shlex.quote(str(Path(path).parent))} && cat > {part} "
            f'&& [ "$(wc -c < {part})" -eq {len(data)} ] && chmod {mode:o} {part} '
            f"&& mv -f {part} {final} || {{ rm -f {part}; exit 1; }}"
        )
        with ssh_errors(_where(node)):
            done = await connection.run(command, **_input(data), encoding=None)
        if _exit_status(done, node) != 0:
            complaint = done.stderr
            reason = complaint.decode(errors="replace") if isinstance(complaint, bytes) else ""
            raise NodeError(
                f"{_where(node)}: {path} cannot be written: {reason.strip()}", _disk_hint(path)
            )

    async def _connection(self, node: Node) -> asyncssh.SSHClientConnection:
        async with self._locks.setdefault(node.name, asyncio.Lock()):
            connection = self._nodes.get(node.name)
            if connection is None or connection.is_closed():
                connection = await self._connect(node)
                self._nodes[node.name] = connection
            return connection

    async def _connect(self, node: Node) -> asyncssh.SSHClientConnection:
        proxy = await self._proxy(node)
        try:
            with ssh_errors(_where(node), CONNECT_TIMEOUT_S):
                return await asyncssh.connect(
                    node.address,
                    node.port,
                    username=self._inventory.user,
                    tunnel=self._bastion,
                    sock=proxy.wire if proxy else None,
                    **_options(self._inventory.folder),
                )
        except Unreachable as error:
            if proxy and (complaint := await proxy.complaint()):
                raise Unreachable(f"{_where(node)}: {complaint}", error.hint) from error
            raise

    async def _proxy(self, node: Node) -> Proxy | None:
        """A command of its own, where the node is reached by one; an earlier one has ended."""
        command = _proxy_command(self._inventory, node)
        if not command:
            return None
        if earlier := self._proxies.pop(node.name, None):
            await earlier.end()
        with ssh_errors(_where(node)):
            self._proxies[node.name] = await Proxy.start(command)
        return self._proxies[node.name]

    async def _close(self) -> None:
        for connection in self._nodes.values():
            connection.abort()
        await asyncio.gather(*(proxy.end() for proxy in self._proxies.values()))


@asynccontextmanager
async def connect(inventory: Inventory) -> AsyncIterator[Connections]:
    """The bastion, if any, is connected; nodes follow when first used; all are closed at the end.

    Raises NodeError when the bastion cannot be reached, or shows a host key that is not pinned.
    """
    bastion, connection = inventory.bastion, None
    if bastion is not None:
        with ssh_errors(_bastion_name(bastion), CONNECT_TIMEOUT_S):
            connection = await asyncssh.connect(
                bastion.address, bastion.port, username=bastion.user, **_options(inventory.folder)
            )
    connections = Connections(inventory, connection)
    try:
        yield connections
    finally:
        await connections._close()
        if connection is not None:
            connection.abort()


def _input(data: str | bytes | None) -> dict[str, Any]:
    """Standard input that ends: asyncssh leaves it open after an empty `input`."""
    return {"input": data} if data else {"stdin": asyncssh.DEVNULL}


def _options(folder: Path) -> dict[str, Any]:
    """Options of every connection; what is None here is switched off, not left to defaults."""
    return {
        "config": None,
        "agent_path": None,
        "client_keys": [str(folder / "id_ed25519")],
        "client_certs": (),
        "known_hosts": str(folder / "known_hosts"),
        "preferred_auth": "publickey",
        "password": None,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": 3,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "login_timeout": CONNECT_TIMEOUT_S,
    }


@contextmanager
def ssh_errors(where: str, limit_s: float | None = None) -> Iterator[None]:
    """What asyncssh and the system raise becomes a NodeError about `where`.

    Where the machine does not answer, and may be gone, it is Unreachable.
    """
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        raise NodeError(
            f"{where} shows a host key that is not the pinned one",
            "somebody may be in between; if you replaced the machine, `gpuctl up` pins its new key",
        ) from error
    except asyncssh.PermissionDenied as error:
        raise NodeError(
            f"{where} refused the cluster's key",
            "its authorized_keys changed; see its console, or replace the node",
        ) from error
    except TimeoutError as error:
        seconds = f" within {limit_s:g} s" if limit_s is not None else " in time"
        raise Unreachable(f"{where} did not answer{seconds}", _REACH_HINT) from error
    except asyncssh.KeyImportError as error:
        raise NodeError(
            f"{where}: the cluster's key cannot be used: {error}",
            "restore id_ed25519 in the cluster's folder",
        ) from error
    except asyncssh.ChannelOpenError as error:
        raise Unreachable(
            f"{where} cannot be reached from the bastion: {error.reason}", _REACH_HINT
        ) from error
    except asyncssh.Error as error:
        raise Unreachable(f"{where}: {error.reason}", _REACH_HINT) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unreachable(f"{where} cannot be reached: {reason}", _REACH_HINT) from error


_REACH_HINT = (
    "`gpuctl status` tells whether it runs; ssh is let in from `network.ssh_from` alone,"
    " so see whether your address changed"
)


def openssh_config(inventory: Inventory) -> str:
    """An ssh_config by which plain `ssh -F FILE node0` goes the same way as gpuctl."""
    bastion, folder = inventory.bastion, inventory.folder
    blocks = []
    if bastion is not None:
        blocks = [_host("bastion", bastion.address, bastion.port, bastion.user)]
    for node in inventory.nodes:
        block = _host(node.name, node.address, node.port, inventory.user)
        if proxy := _proxy_command(inventory, node):
            block += f"  ProxyCommand {shlex.join(proxy).replace('%', '%%')}\n"
        blocks.append(block if bastion is None else f"{block}  ProxyJump bastion\n")
    blocks.append(
        "Host *\n"
        f"  IdentityFile {_quoted(folder / 'id_ed25519')}\n"
        "  IdentitiesOnly yes\n"
        "  IdentityAgent none\n"
        f"  UserKnownHostsFile {_quoted(folder / 'known_hosts')}\n"
        "  GlobalKnownHostsFile /dev/null\n"
        "  StrictHostKeyChecking yes\n"
        "  PreferredAuthentications publickey\n"
        f"  ServerAliveInterval {KEEPALIVE_S}\n"
        "  LogLevel ERROR\n"
    )
    return "\n".join(blocks)


def _proxy_command(inventory: Inventory, node: Node) -> list[str]:
    """The command that connects with the node, none where its address does."""
    return [*inventory.proxy, node.instance_id] if inventory.proxy else []


def known_hosts_name(address: str, port: int) -> str:
    """How known_hosts writes an address: bare for port 22, else `[address]:port`."""
    return address if port == 22 else f"[{address}]:{port}"


def _host(name: str, address: str, port: int, user: str) -> str:
    return f"Host {name}\n  HostName {address}\n  Port {port}\n  User {user}\n"


def _quoted(path: Path) -> str:
    """A path as ssh_config takes it: quoted, with `%` kept from being a token."""
    return '"' + str(path).replace("%", "%%") + '"'


def _where(node: Node) -> str:
    return f"{node.name} ({node.address})"


def _bastion_name(bastion: Bastion) -> str:
    return f"the bastion ({bastion.address})"


def _first_line(command: str) -> str:
    first = command.strip().splitlines()[0]
    return first if len(first) <= 60 else f"{first[:57]}..."


def _disk_hint(path: str) -> str:
    return f"see whether the disk under {path} is full or read-only"


def _exit_status(done: asyncssh.SSHCompletedProcess, node: Node) -> int:
    if done.returncode is None:
        raise Unreachable(f"{_where(node)}: the connection was lost", _REACH_HINT)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


async def _keep_last(stream: asyncssh.SSHReader[str], lines: deque[str]) -> None:
    async for line in stream:
        if line.strip():
            lines.append(line.strip())
