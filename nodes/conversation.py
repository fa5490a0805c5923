"""A command on a node that reads and writes bytes while it runs."""

from abc import ABC, abstractmethod
from collections.abc import AsyncGenerator, AsyncIterator
from contextlib import AbstractAsyncContextManager, suppress
from typing import Protocol

from config.errors import NodeError
from nodes.inventory import Node

LONGEST_LINE = 64 << 20
_PIECE = 1 << 16


class Input(Protocol):
    """The command's input: that of asyncssh, or a stream to the broker."""

    def write(self, data: bytes, /) -> None:
        """Take the bytes, to be sent."""

    async def drain(self) -> None:
        """Wait until more bytes can be sent."""

    def write_eof(self) -> None:
        """End the input."""


class Output(Protocol):
    """The command's output: that of asyncssh, or a stream from the broker."""

    async def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""


class Conversation:
    """The command's input and output. `write` waits for a command that reads slowly."""

    def __init__(self, stdin: Input, stdout: Output) -> None:
        self._stdin, self._stdout = stdin, stdout
        self._unread = bytearray()

    async def write(self, data: bytes) -> None:
        """Send the bytes; do nothing if the command has ended, whose answer has the reason."""
        with suppress(ConnectionError):  # its answer has the reason
            self._stdin.write(data)
            await self._stdin.drain()

    def send_whole_input(self, data: bytes) -> None:
        """Send the bytes and end the input, without waiting for a command that reads slowly."""
        with suppress(ConnectionError):  # the command has ended, and its answer has the reason
            self._stdin.write(data)
            self._stdin.write_eof()

    def end_input(self) -> None:
        """End the command's input."""
        with suppress(ConnectionError):  # the command has ended
            self._stdin.write_eof()

    async def skip_past(self, mark: bytes, most: int) -> bool:
        """Read to the end of the mark; keep everything if the output ends without it.

        Return False if more than `most` bytes came before it.
        """
        searched = 0
        while (at := self._unread.find(mark, max(0, searched - len(mark)))) < 0:
            searched = len(self._unread)
            if searched > most:
                return False
            data = await self._stdout.read(_PIECE)
            if not data:
                return True
            self._unread += data
        self._take(at + len(mark))
        return True

    async def line(self, most: int = LONGEST_LINE) -> bytes:
        """Return the next line of output; empty at the end.

        Raises NodeError for a line of more than `most` bytes: a job is root on its node.
        """
        searched = 0
        while (end := self._unread.find(b"\n", searched)) < 0:
            searched = len(self._unread)
            if searched > most:
                raise NodeError(f"it sent a line of more than {most >> 20} MiB", "")
            data = await self._stdout.read(_PIECE)  # its `readline` has a limit
            if not data:
                return self._take(searched)
            self._unread += data
        return self._take(end + 1)

    async def lines(self) -> AsyncIterator[bytes]:
        """Yield the lines of output to its end."""
        while line := await self.line():
            yield line

    async def read(self, size: int) -> bytes:
        """Return at most `size` bytes of output; none at its end."""
        if self._unread:
            return self._take(size)
        return await self._stdout.read(size)

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data


class Converser(ABC):
    """What can converse with commands on nodes."""

    @abstractmethod
    def converse(self, node: Node, command: str) -> AbstractAsyncContextManager[Conversation]:
        """Start the command and yield its input and output, which are bytes.

        On exit the input ends, and the command is awaited. Raises NodeError for an exit status
        other than 0 (with the last line of standard error) and for a lost connection.
        """

    async def lines(
        self, node: Node, command: str, *, stdin: str | None = None
    ) -> AsyncGenerator[str, None]:
        """Yield lines of the command's standard output as they arrive, without line ends.

        `stdin` is all of its input. Raises NodeError as `converse` does.
        """
        async with self.converse(node, command) as talk:
            talk.send_whole_input((stdin or "").encode())
            async for line in talk.lines():
                yield line.decode("utf-8", "replace").rstrip("\r\n")
