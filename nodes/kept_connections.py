"""Run commands on nodes, over ssh connections that outlive one gpuctl command."""

import asyncio
import json
from collections.abc import AsyncGenerator, AsyncIterator, Sequence
from contextlib import asynccontextmanager, closing
from typing import Any

from config.errors import GpuctlError, NodeError
from nodes import dial
from nodes.answers import Completed, NotReached, Unreachable, broker_lost
from nodes.inventory import Inventory, Node


class KeptConnections:
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
        request = {"do": "run", "nodes": [node.name], "command": command, "timeout": timeout}
        async for answer in self._answers(request, (stdin or "").encode()):
            completed = _completed(answer[node.name])
            if isinstance(completed, GpuctlError):
                raise completed
            return completed
        raise self._lost()

    async def run_each(
        self, nodes: Sequence[Node], command: str
    ) -> dict[int, Completed | GpuctlError]:
        """Run the command on all nodes at once; return one entry per rank, in the given order."""
        names = [node.name for node in nodes]
        request = {"do": "run", "nodes": names, "command": command, "timeout": None}
        async for answer in self._answers(request):
            return {node.rank: _completed(answer[node.name]) for node in nodes}
        raise self._lost()

    async def lines(
        self, node: Node, command: str, *, stdin: str | None = None
    ) -> AsyncGenerator[str, None]:
        """Yield lines of the command's standard output as they arrive, without line ends.

        `stdin` is all of its input. Raises NodeError for an exit status other than 0 (with the
        last line of standard error) and for a lost connection.
        """
        request = {"do": "lines", "nodes": [node.name], "command": command}
        async for line in self._answers(request, (stdin or "").encode()):
            if not isinstance(line, str):
                return
            yield line
        raise self._lost()

    async def _answers(self, request: dict[str, Any], data: bytes = b"") -> AsyncIterator[Any]:
        """Yield the broker's answer, line by line; raise the error that it contains."""
        reader, writer = await _dial(self._inventory)
        with closing(writer):
            header = json.dumps({**request, "size": len(data)}).encode()
            writer.write(header + b"\n" + data)
            try:
                while line := await reader.readline():
                    answer = json.loads(line)
                    if error := _error(answer):
                        raise error
                    yield answer
            except (OSError, ValueError) as error:
                raise self._lost() from error

    def _lost(self) -> Unreachable:
        return broker_lost(self._inventory.cluster, self._inventory.folder)


@asynccontextmanager
async def connect(inventory: Inventory) -> AsyncIterator[KeptConnections]:
    """Yield connections to the cluster's nodes; the broker is started at the first command.

    Every command raises NodeError if the bastion cannot be reached, or shows a host key that is not
    pinned.
    """
    yield KeptConnections(inventory)


async def _dial(inventory: Inventory) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
    folder, values = str(inventory.folder), inventory.model_dump(mode="json")
    try:
        connection = await asyncio.to_thread(dial.dial, folder, values)
        return await asyncio.open_unix_connection(sock=connection, limit=dial.LIMIT)
    except OSError as error:
        raise NodeError(
            f"no ssh connection can be kept in {folder}: {error}", "see whether you may write there"
        ) from error


def _completed(answer: dict[str, Any]) -> Completed | GpuctlError:
    return _error(answer) or Completed(**answer)


def _error(answer: Any) -> NodeError | None:
    """Return the error that an answer holds, or None."""
    if isinstance(answer, dict) and "unreachable" in answer:
        kind = NotReached if answer.get("not_reached") else Unreachable
        return kind(*answer["unreachable"])
    if isinstance(answer, dict) and "error" in answer:
        return NodeError(*answer["error"])
    return None
