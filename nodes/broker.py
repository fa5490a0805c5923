"""A background process that keeps a cluster's ssh connections open for later commands.

    python -m nodes.broker FOLDER      # by nodes.dial; inventory and stamp are on stdin

It listens on a Unix socket in the cluster's folder, which its owner alone may enter. It ends when
nobody has used it for a while, when the cluster's folder is removed, when the nodes or their pinned
keys change, and after the machine slept, because no connection survives that.
"""

import asyncio
import contextlib
import json
import os
import socket
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from nodes.inventory import Inventory, Node
    from nodes.ssh import Connections

from nodes.dial import LIMIT, SOCKET

LOOK_S = 2.0
"""Seconds between two checks whether the broker is still useful."""
SLEPT_S = 30.0

Message = dict[str, Any]


def main() -> None:
    """Listen on the socket, then fork: the child serves, and the process that was started ends."""
    os.chdir(sys.argv[1])
    handed = json.load(sys.stdin)
    with contextlib.suppress(FileNotFoundError):  # no earlier broker left its socket
        Path(SOCKET).unlink()
    listener = socket.socket(socket.AF_UNIX)
    old = os.umask(0o177)
    listener.bind(SOCKET)
    os.umask(old)
    listener.listen(128)
    if os.fork():
        os._exit(0)
    os.setsid()
    from nodes.inventory import Inventory

    inventory = Inventory.model_validate(handed["inventory"])
    asyncio.run(Broker(inventory, handed["stamp"], handed["idle_s"]).serve(listener))


class Broker:
    """A server that answers one request per connection, in the protocol of `nodes.dial`."""

    def __init__(self, inventory: "Inventory", stamp: str, idle_s: float) -> None:
        self._nodes = {node.name: node for node in inventory.nodes}
        self._inventory, self._stamp, self._idle_s = inventory, stamp, idle_s
        self._opening = asyncio.Lock()
        self._held: Connections | None = None
        self._holding = contextlib.AsyncExitStack()
        self._requests: set[asyncio.Task[None]] = set()
        self._useless = asyncio.Event()
        self._used = time.time()

    async def serve(self, listener: socket.socket) -> None:
        """Serve until the broker is no longer useful; answer the requests under way first."""
        own = _inode()
        server = await asyncio.start_unix_server(self._attend, sock=listener, limit=LIMIT)
        watching = asyncio.create_task(self._watch(own))
        await self._useless.wait()
        watching.cancel()
        server.close()
        if self._requests:
            await asyncio.wait(self._requests)
        await self._holding.aclose()

    async def _watch(self, own: int | None) -> None:
        seen = time.time()
        while not self._useless.is_set():
            await asyncio.sleep(LOOK_S)
            now = time.time()
            if self._requests:
                self._used = now
            is_idle = now - self._used > self._idle_s
            if is_idle or _inode() != own or now - seen > SLEPT_S:
                self._useless.set()
            seen = now

    async def _attend(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        """Answer one client; if the client leaves, its command is cancelled."""
        task = asyncio.current_task()
        assert task is not None
        self._requests.add(task)
        self._used = time.time()
        try:
            # If a client left or does not keep to the protocol, close its connection without an
            # answer.
            with contextlib.suppress(ConnectionError, asyncio.IncompleteReadError, ValueError):
                if (await reader.readline()).decode().strip() != self._stamp:
                    self._useless.set()  # the client has other nodes, or another version of gpuctl
                    return
                writer.write(b"ok\n")
                request = json.loads(await reader.readline())
                data = await reader.readexactly(request["size"])
                await self._until_left(reader, self._answer(request, data, writer))
                await writer.drain()
        finally:
            writer.close()
            self._used = time.time()
            self._requests.discard(task)

    async def _until_left(self, reader: asyncio.StreamReader, answering: Any) -> None:
        answer, leaving = asyncio.ensure_future(answering), asyncio.ensure_future(reader.read(1))
        try:
            await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
        finally:
            leaving.cancel()
            if not answer.done():
                answer.cancel()
            with contextlib.suppress(asyncio.CancelledError):  # because the client left
                await answer

    async def _answer(self, request: Message, data: bytes, writer: asyncio.StreamWriter) -> None:
        from config.errors import GpuctlError

        def send(value: object) -> None:
            writer.write(json.dumps(value).encode() + b"\n")

        try:
            connections = await self._connections()
            nodes = [self._nodes[name] for name in request["nodes"] or self._nodes]
            if request["do"] == "run":
                send(await _run(connections, nodes, request, data))
            else:
                stdin = data.decode() or None
                lines = connections.lines(nodes[0], request["command"], stdin=stdin)
                async with contextlib.aclosing(lines):
                    async for line in lines:
                        send(line)
                        await writer.drain()
                send({})
        except GpuctlError as error:
            send(_error_message(error))

    async def _connections(self) -> "Connections":
        """Return the connections; each one that is lost opens again when it is next used."""
        from nodes.ssh import connect

        async with self._opening:
            if self._held is None:
                self._held = await self._holding.enter_async_context(connect(self._inventory))
            return self._held


def _inode() -> int | None:
    """Return the socket's inode number, or None if the cluster's folder was removed."""
    try:
        return Path(sys.argv[1], SOCKET).stat().st_ino
    except OSError:
        return None


async def _run(
    connections: "Connections", nodes: "list[Node]", request: Message, data: bytes
) -> Message:
    """Run the command on the nodes and return one answer per node name."""
    from config.errors import GpuctlError
    from nodes.fanout import on_each

    stdin, limit = data.decode() or None, request["timeout"]
    answers = await on_each(
        nodes, lambda node: connections.run(node, request["command"], stdin=stdin, timeout=limit)
    )
    return {
        node.name: _error_message(answer) if isinstance(answer, GpuctlError) else vars(answer)
        for node, answer in zip(nodes, (answers[node.rank] for node in nodes), strict=True)
    }


def _error_message(error: Any) -> Message:
    from nodes.answers import NotReached, Unreachable

    kind = "unreachable" if isinstance(error, Unreachable) else "error"
    not_reached = {"not_reached": True} if isinstance(error, NotReached) else {}
    return {kind: [error.message, error.hint], **not_reached}


if __name__ == "__main__":
    main()
