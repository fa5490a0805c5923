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
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

from config.errors import GpuctlError
from nodes.answers import CommandFailed, NotReached, Unreachable
from nodes.conversation import Conversation
from nodes.dial import FRAME, LIMIT, SOCKET, Disconnected, FrameReader, FrameWriter
from nodes.fanout import on_each
from nodes.inventory import Inventory
from nodes.ssh import Connections, connect

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
    inventory = Inventory.model_validate(handed["inventory"])
    asyncio.run(Broker(inventory, handed["stamp"], handed["idle_s"]).serve(listener))


class Broker:
    """A server that answers one request per connection, in the protocol of `nodes.dial`."""

    def __init__(self, inventory: Inventory, stamp: str, idle_s: float) -> None:
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
            with contextlib.suppress(
                Disconnected, ConnectionError, asyncio.IncompleteReadError, ValueError
            ):
                if (await reader.readline()).decode().strip() != self._stamp:
                    self._useless.set()  # the client has other nodes, or another version of gpuctl
                    return
                writer.write(b"ok\n")
                request = json.loads(await reader.readline())
                if request["do"] == "run":
                    answering = self._run(request, await reader.readexactly(request["size"]))
                    writer.write(await _until_left(reader, answering))
                else:
                    writer.write(await self._converse(request, reader, writer))
                await writer.drain()
        finally:
            writer.close()
            self._used = time.time()
            self._requests.discard(task)

    async def _run(self, request: Message, data: bytes) -> bytes:
        """Run the command on the nodes; return the line with one answer per node name."""
        stdin, limit = data.decode() or None, request["timeout"]
        nodes = [self._nodes[name] for name in request["nodes"] or self._nodes]
        try:
            connections = await self._connections()
        except GpuctlError as error:
            return _line(_error_message(error))
        answers = await on_each(
            nodes,
            lambda node: connections.run(node, request["command"], stdin=stdin, timeout=limit),
        )
        by_name = {node.name: answers[node.rank] for node in nodes}
        return _line(
            {
                name: _error_message(answer) if isinstance(answer, GpuctlError) else vars(answer)
                for name, answer in by_name.items()
            }
        )

    async def _converse(
        self, request: Message, reader: asyncio.StreamReader, writer: asyncio.StreamWriter
    ) -> bytes:
        """Pass input and output of the command on, as frames; return the line about its end."""
        node = self._nodes[request["node"]]
        output, answer = FrameWriter(writer), {}
        try:
            connections = await self._connections()
            async with connections.converse(node, request["command"]) as talk:
                sending = asyncio.create_task(_pass_on(talk, output))
                feeding = asyncio.create_task(_feed(reader, talk))
                try:
                    await asyncio.wait({sending, feeding}, return_when=asyncio.FIRST_COMPLETED)
                    (sending if sending.done() else feeding).result()
                finally:
                    sending.cancel()
                    feeding.cancel()
        except GpuctlError as error:
            answer = _error_message(error)
        output.write_eof()
        return _line(answer)

    async def _connections(self) -> Connections:
        """Return the connections; each one that is lost opens again when it is next used."""
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


async def _until_left(reader: asyncio.StreamReader, answering: Coroutine[Any, Any, bytes]) -> bytes:
    """Return the answer; if the client leaves before, end what it asked for.

    Raises Disconnected then.
    """
    answer, leaving = asyncio.create_task(answering), asyncio.create_task(reader.read(1))
    try:
        await asyncio.wait({answer, leaving}, return_when=asyncio.FIRST_COMPLETED)
        if not answer.done():
            raise Disconnected
        return answer.result()
    finally:
        leaving.cancel()
        answer.cancel()
        await asyncio.wait({answer})


async def _feed(reader: asyncio.StreamReader, talk: Conversation) -> None:
    """Pass the client's input on, until the client leaves. Raises Disconnected then."""
    source = FrameReader(reader)
    while data := await source.read(FRAME):
        await talk.write(data)
    talk.end_input()
    await reader.read(1)
    raise Disconnected


async def _pass_on(talk: Conversation, output: FrameWriter) -> None:
    while data := await talk.read(FRAME):
        output.write(data)
        await output.drain()


def _line(answer: Message) -> bytes:
    return json.dumps(answer).encode() + b"\n"


def _error_message(error: GpuctlError) -> Message:
    kind = "unreachable" if isinstance(error, Unreachable) else "error"
    answer: Message = {kind: [error.message, error.hint]}
    if isinstance(error, NotReached):
        answer["not_reached"] = True
    if isinstance(error, CommandFailed):
        answer["reason"] = error.reason
    return answer


if __name__ == "__main__":
    main()
