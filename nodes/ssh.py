"""Run commands on nodes, over one ssh connection to the bastion and tunnels in it.

Without a bastion each node is reached directly, by its address or through a command.

Where this machine has gpuctl's own key of the cluster, nothing of the user's ssh set-up is used:
no agent, no ~/.ssh/config, no passwords. Elsewhere the user's keys log in (nodes/identity.py). The
only known_hosts is the cluster's, in which every host key was pinned before the first connection.
"""

import asyncio
import os
from collections import deque
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager, contextmanager
from typing import Any

import asyncssh

from config.command_text import command_text
from config.errors import NodeError
from nodes.answers import (
    LONGEST,
    MARK,
    MOST_NOISE,
    CommandFailed,
    Completed,
    NotReached,
    Unreachable,
    after_mark,
    mark,
)
from nodes.conversation import Conversation, Converser
from nodes.inventory import Bastion, Inventory, Node
from nodes.login import login_errors, login_options
from nodes.openssh import KEEPALIVE_S, proxy_command
from nodes.proxy import Proxy

CONNECT_TIMEOUT_S = 30
LARGEST_ANSWER = 16 << 20
"""Bytes of a command's output: a job is root on its node, and could send without end."""


class Connections(Converser):
    """Ssh connections to a cluster's nodes. Each opens when first used, and again if lost.

    `nodes_key` is a private key that logs in to nodes instead of this machine's; the bastion takes
    this machine's in any case.
    """

    def __init__(self, inventory: Inventory, nodes_key: str = "") -> None:
        self._inventory = inventory
        self._nodes_key = nodes_key
        self._hint = _REACH_HINT if inventory.is_rented else _OWN_HINT
        self._bastion: asyncssh.SSHClientConnection | None = None
        self._entering = asyncio.Lock()
        self._locks: dict[str, asyncio.Lock] = {}
        self._nodes: dict[str, asyncssh.SSHClientConnection] = {}
        self._proxies: dict[str, Proxy] = {}
        self._full: list[asyncssh.SSHClientConnection] = []

    async def enter(self, lost: asyncssh.SSHClientConnection | None = None) -> None:
        """Connect to the bastion, if there is one, in place of the connection that was `lost`.

        Raises NodeError when it cannot be reached, or shows a host key that is not pinned.
        """
        bastion = self._inventory.bastion
        async with self._entering:
            if bastion is None or self._bastion is not lost:
                return
            where = _bastion_name(bastion)
            with connect_errors(where), login_errors(where, self._inventory):
                self._bastion = await asyncssh.connect(
                    bastion.address,
                    bastion.port,
                    username=bastion.user,
                    **_options(self._inventory),
                )

    async def run(
        self,
        node: Node,
        command: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109  the remote command is bounded, and named
    ) -> Completed:
        """Run the command on `node` to its end, whatever its exit status.

        `command` goes to the login shell of the node's user; `stdin` is all of its input. Raises
        NodeError when the node cannot be reached, `timeout` seconds passed, or it answers more than
        LARGEST_ANSWER.
        """
        with ssh_errors(_where(node), timeout, self._hint):
            async with asyncio.timeout(timeout):
                process = await self._process(node, command)
                talk = Conversation(process.stdin, process.stdout)
                try:
                    talk.send_whole_input((stdin or "").encode())
                    printed, complaints = await asyncio.gather(
                        _whole(process.stdout, node), _whole(process.stderr, node)
                    )
                    done = await process.wait()
                finally:
                    process.close()  # closes the channel; the connection stays open
        texts = (after_mark(text) for text in (printed, complaints))
        return Completed(_exit_status(done, node, self._hint), *texts)

    async def run_on_bastion(
        self,
        command: str,
        timeout: float,  # noqa: ASYNC109
        stdin: str | None = None,
    ) -> Completed:
        """Run the command on the bastion, which the cluster must have, as its user.

        `stdin` is all of its input. Raises NodeError when the bastion cannot be reached or
        `timeout` seconds passed.
        """
        bastion = self._inventory.bastion
        assert bastion is not None
        assert self._bastion is not None
        with ssh_errors(_bastion_name(bastion), timeout):
            done = await self._bastion.run(
                mark(command), input=stdin, timeout=timeout, errors="replace"
            )
        status = 1 if done.returncode is None else done.returncode
        return Completed(status, *(after_mark(str(text)) for text in (done.stdout, done.stderr)))

    def _check(self, node: Node, command: str, status: int, complaints: deque[str]) -> None:
        """Raise NodeError for an exit status other than 0."""
        if status != 0:
            last = complaints[-1][:LONGEST] if complaints else "it said nothing on standard error"
            raise CommandFailed(
                f"{_where(node)}: `{_first_line(command)}` exited with {status}: {last}",
                "inspect it with"
                f" {command_text('gpuctl ssh {} {}', self._inventory.cluster, node.name)}",
                last,
            )

    @asynccontextmanager
    async def converse(self, node: Node, command: str) -> AsyncIterator[Conversation]:
        """Converse with the command, see Converser."""
        with ssh_errors(_where(node), hint=self._hint):
            process = await self._process(node, command)
            complaints: deque[str] = deque(maxlen=20)
            drained = asyncio.create_task(_keep_last(process.stderr, complaints))
            talk = Conversation(process.stdin, process.stdout)
            try:
                if not await talk.skip_past(f"{MARK}\n".encode(), MOST_NOISE):
                    raise NodeError(*_printed_too_much(node))
                yield talk
                talk.end_input()
                done = await process.wait()
                await drained
            finally:
                drained.cancel()
                process.close()
        self._check(node, command, _exit_status(done, node, self._hint), complaints)

    async def _process(self, node: Node, command: str) -> asyncssh.SSHClientProcess[bytes]:
        """Start a command, on a new connection if sshd accepts no more sessions on the first."""
        connection = await self._connection(node)
        command = mark(command)
        try:
            return await connection.create_process(command, encoding=None)
        except asyncssh.ChannelOpenError:  # MaxSessions of sshd_config(5), by default 10
            if self._nodes.get(node.name) is connection:
                self._full.append(self._nodes.pop(node.name))
            connection = await self._connection(node)
            return await connection.create_process(command, encoding=None)

    async def _connection(self, node: Node) -> asyncssh.SSHClientConnection:
        async with self._locks.setdefault(node.name, asyncio.Lock()):
            connection = self._nodes.get(node.name)
            if connection is None or connection.is_closed():
                connection = await self._connect(node)
                self._nodes[node.name] = connection
            return connection

    async def _connect(self, node: Node) -> asyncssh.SSHClientConnection:
        entrance = self._bastion
        try:
            return await self._connect_through(entrance, node)
        except Unreachable:
            if entrance is None or not entrance.is_closed():
                raise
        # The bastion's connection ended before the node was reached: nothing has run on the node.
        await self.enter(entrance)
        return await self._connect_through(self._bastion, node)

    async def _connect_through(
        self, entrance: asyncssh.SSHClientConnection | None, node: Node
    ) -> asyncssh.SSHClientConnection:
        proxy = await self._proxy(node)
        try:
            where = _where(node)
            with connect_errors(where, self._hint), login_errors(where, self._inventory):
                return await asyncssh.connect(
                    node.address,
                    node.port,
                    username=self._inventory.user,
                    tunnel=entrance,
                    sock=proxy.wire if proxy else None,
                    **_options(self._inventory, self._nodes_key),
                )
        except Unreachable as error:
            if proxy and (complaint := await proxy.complaint()):
                raise NotReached(f"{_where(node)}: {complaint}", error.hint) from error
            raise

    async def _proxy(self, node: Node) -> Proxy | None:
        """Start the proxy command of a node that is reached by one; end an earlier one first."""
        command = proxy_command(self._inventory, node)
        if not command:
            return None
        if earlier := self._proxies.pop(node.name, None):
            await earlier.end()
        with ssh_errors(_where(node), hint=self._hint):
            self._proxies[node.name] = await Proxy.start(command)
        return self._proxies[node.name]

    async def close(self) -> None:
        """End all connections at once."""
        for connection in (*self._nodes.values(), *self._full):
            connection.abort()
        if self._bastion is not None:
            self._bastion.abort()
        await asyncio.gather(*(proxy.end() for proxy in self._proxies.values()))


@asynccontextmanager
async def connect(inventory: Inventory, nodes_key: str = "") -> AsyncIterator[Connections]:
    """Yield connections, the bastion's open, a node's opened when first used; close all later.

    `nodes_key` is a private key with which to log in to nodes. Raises NodeError when the bastion
    cannot be reached, or shows a host key that is not pinned.
    """
    connections = Connections(inventory, nodes_key)
    await connections.enter()
    try:
        yield connections
    finally:
        await connections.close()


def _options(inventory: Inventory, private_key: str = "") -> dict[str, Any]:
    """Return the options of every connection; None switches a default feature off."""
    return {
        "config": None,
        **login_options(inventory, private_key),
        "known_hosts": str(inventory.folder / "known_hosts"),
        "preferred_auth": "publickey",
        "password": None,
        "keepalive_interval": KEEPALIVE_S,
        "keepalive_count_max": 3,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "login_timeout": CONNECT_TIMEOUT_S,
    }


@contextmanager
def connect_errors(where: str, hint: str | None = None) -> Iterator[None]:
    """Raise the errors of `ssh_errors` for a connection that is being made: nothing runs yet."""
    try:
        with ssh_errors(where, CONNECT_TIMEOUT_S, hint):
            yield
    except Unreachable as error:
        raise NotReached(error.message, error.hint) from error


@contextmanager
def ssh_errors(where: str, limit_s: float | None = None, hint: str | None = None) -> Iterator[None]:
    """Raise NodeError about `where` for the errors of asyncssh and of the system.

    If the machine does not answer, and may be gone, the error is Unreachable, with the hint.
    """
    remedy = _REACH_HINT if hint is None else hint
    try:
        yield
    except asyncssh.HostKeyNotVerifiable as error:
        raise NodeError(
            f"{where} shows a host key that is not the pinned one",
            "somebody may be in between; if you replaced the machine, `gpuctl up` pins its new key",
        ) from error
    except TimeoutError as error:
        seconds = f" within {limit_s:g} s" if limit_s is not None else " in time"
        raise Unreachable(f"{where} did not answer{seconds}", remedy) from error
    except asyncssh.ChannelOpenError as error:
        raise Unreachable(
            f"{where} cannot be reached from the bastion: {error.reason}", remedy
        ) from error
    except asyncssh.Error as error:
        raise Unreachable(f"{where}: {error.reason}", remedy) from error
    except OSError as error:
        reason = os.strerror(error.errno) if error.errno else str(error)
        raise Unreachable(f"{where} cannot be reached: {reason}", remedy) from error


_REACH_HINT = (
    "`gpuctl status` shows whether it runs; only `network.ssh_from` may connect with ssh,"
    " so check whether your address changed"
)

_OWN_HINT = "see whether it runs, and whether `ssh` reaches it from this machine"


def _where(node: Node) -> str:
    return f"{node.name} ({node.address})"


def _bastion_name(bastion: Bastion) -> str:
    return f"the bastion ({bastion.address})"


def _first_line(command: str) -> str:
    first = command.strip().splitlines()[0]
    return first if len(first) <= 60 else f"{first[:57]}..."


def _printed_too_much(node: Node) -> tuple[str, str]:
    text = f"its shell printed more than {MOST_NOISE >> 20} MiB before the command began"
    return f"{_where(node)}: {text}", "see what ~/.bashrc and /etc/bash.bashrc do there"


def _exit_status(done: asyncssh.SSHCompletedProcess, node: Node, hint: str) -> int:
    if done.returncode is None:
        raise Unreachable(f"{_where(node)}: the connection was lost", hint)
    return done.returncode if done.returncode >= 0 else 128 - done.returncode


async def _whole(stream: asyncssh.SSHReader[bytes], node: Node) -> str:
    """Return the stream to its end; raise NodeError if it has more than LARGEST_ANSWER."""
    whole = bytearray()
    while piece := await stream.read(1 << 16):
        whole += piece
        if len(whole) > LARGEST_ANSWER:
            raise NodeError(f"{_where(node)} answered more than {LARGEST_ANSWER >> 20} MiB", "")
    return whole.decode("utf-8", "replace")


async def _keep_last(stream: asyncssh.SSHReader[bytes], lines: deque[str]) -> None:
    async for line in stream:
        text = line.decode("utf-8", "replace")
        if text.endswith(f"{MARK}\n"):
            lines.clear()
        elif text.strip():
            lines.append(text.strip())
