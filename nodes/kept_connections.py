"""Run commands on nodes, over ssh connections that outlive one gpuctl command."""

import asyncio
import json
import os
import socket
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing, suppress
from typing import TYPE_CHECKING, Any

from config.errors import GpuctlError, NodeError
from nodes import dial
from nodes.answers import Completed, Unreachable, error_of, parse_answer
from nodes.conversation import Conversation, Converser
from nodes.dial import FRAME, Disconnected, FrameReader, FrameWriter
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node

if TYPE_CHECKING:
    from nodes.ssh import Connections


class KeptConnections(Converser):
    """The methods of `nodes.ssh.Connections`, over ssh connections of the cluster's broker."""

    def __init__(self, inventory: Inventory) -> None:
        self._inventory = inventory

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
        NodeError when the node cannot be reached or `timeout` seconds passed.
        """
        answers = await self.run_on([node], command, stdin=stdin, timeout=timeout)
        completed = answers[node.name]
        if isinstance(completed, GpuctlError):
            raise completed
        return completed

    async def run_on(
        self,
        nodes: Sequence[Node],
        command: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Completed | GpuctlError]:
        """Run the command on these nodes at once, as `run` does; return all answers by node name.

        Raises NodeError if no node could be asked.
        """
        data, names = (stdin or "").encode(), [node.name for node in nodes]
        request = {"do": "run", "nodes": names, "command": command, "timeout": timeout}
        reader, writer = await _dial(self._inventory)
        with closing(writer):
            writer.write(json.dumps({**request, "size": len(data)}).encode() + b"\n" + data)
            answers = await self._answer(reader)
        return {name: parse_answer(answers[name]) for name in names}

    @asynccontextmanager
    async def converse(self, node: Node, command: str) -> AsyncIterator[Conversation]:
        """Converse with the command, see Converser. A node out of reach shows on exit."""
        reader, writer = await _dial(self._inventory)
        output = FrameReader(reader)
        with closing(writer):
            request = {"do": "converse", "node": node.name, "command": command}
            writer.write(json.dumps(request).encode() + b"\n")
            try:
                talk = Conversation(FrameWriter(writer), output)
                yield talk
                talk.end_input()
                while await output.read(FRAME):
                    pass  # nobody wants it
            except Disconnected as error:
                raise self._lost() from error
            await self._answer(reader)

    async def _answer(self, reader: asyncio.StreamReader) -> dict[str, Any]:
        """Read the line that ends an exchange; raise the error that it contains."""
        try:
            answer: dict[str, Any] = json.loads(await reader.readline())
        except (OSError, ValueError) as error:
            raise self._lost() from error
        failure = error_of(answer)
        if failure:
            raise failure
        return answer

    def _lost(self) -> Unreachable:
        cluster, folder = self._inventory.cluster, self._inventory.folder
        return Unreachable(
            f"the broker of ssh connections to {cluster} ended",
            f"try again; see {folder}/broker.log",
        )


class _OwnConnections(KeptConnections):
    """The same methods over connections of this command alone, without a broker."""

    def __init__(self, inventory: Inventory, connections: "Connections") -> None:
        super().__init__(inventory)
        self._connections = connections

    async def run_on(
        self,
        nodes: Sequence[Node],
        command: str,
        *,
        stdin: str | None = None,
        timeout: float | None = None,  # noqa: ASYNC109
    ) -> dict[str, Completed | GpuctlError]:
        """Run the command on these nodes at once, see KeptConnections."""

        async def run(node: Node) -> Completed:
            return await self._connections.run(node, command, stdin=stdin, timeout=timeout)

        answers = await on_each(nodes, run)
        return {node.name: answers[node.rank] for node in nodes}

    @asynccontextmanager
    async def converse(self, node: Node, command: str) -> AsyncIterator[Conversation]:
        """Converse with the command, see Converser."""
        async with self._connections.converse(node, command) as talk:
            yield talk


@asynccontextmanager
async def connect(inventory: Inventory) -> AsyncIterator[KeptConnections]:
    """Yield connections to the cluster's nodes; the broker is started at the first command.

    Every command raises NodeError if the bastion cannot be reached, or shows a host key that is not
    pinned. The broker needs files next to the inventory: where none can be written, on a read-only
    disk for instance, the connections are this command's own.
    """
    if os.access(inventory.folder, os.W_OK) or not inventory.folder.exists():
        yield KeptConnections(inventory)
        return
    # asyncssh takes longer than most commands with a broker.
    from nodes import ssh  # noqa: PLC0415

    async with ssh.connect(inventory) as connections:
        yield _OwnConnections(inventory, connections)


async def _dial(inventory: Inventory) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    folder, values = str(inventory.folder), inventory.model_dump(mode="json")
    loop = asyncio.get_running_loop()
    dialing = loop.run_in_executor(None, dial.dial, folder, values)
    try:
        # The thread goes on after a cancellation: what it opens then has to be closed.
        connection = await asyncio.shield(dialing)
    except asyncio.CancelledError:
        dialing.add_done_callback(_close)
        raise
    except OSError as error:
        raise NodeError(
            f"no ssh connection can be kept in {folder}: {error}", "see whether you may write there"
        ) from error
    return await asyncio.open_unix_connection(sock=connection, limit=dial.LIMIT)


def _close(dialing: "asyncio.Future[socket.socket]") -> None:
    with suppress(OSError):  # no broker answered
        dialing.result().close()
