"""A command on a node that reads and writes bytes while it runs."""

from collections.abc import AsyncIterator
from contextlib import suppress

import asyncssh

from config.errors import NodeError

LONGEST_LINE = 64 << 20
_PIECE = 1 << 16


class Conversation:
    """The command's input and output. `write` waits for a command that reads slowly."""

    def __init__(self, process: asyncssh.SSHClientProcess[bytes]) -> None:
        self._process = process
        self._unread = bytearray()

    async def write(self, data: bytes) -> None:
        """Send the bytes; do nothing if the command has ended, whose answer has the reason."""
        with suppress(ConnectionError):  # its answer has the reason
            self._process.stdin.write(data)
            await self._process.stdin.drain()

    def end_input(self) -> None:
        """End the command's input."""
        with suppress(BrokenPipeError):  # the command has ended
            self._process.stdin.write_eof()

    async def skip_past(self, mark: bytes, most: int) -> bool:
        """Read to the end of the mark; keep everything if the output ends without it.

        Return False if more than `most` bytes came before it.
        """
        searched = 0
        while (found := self._unread.find(mark, max(0, searched - len(mark)))) < 0:
            searched = len(self._unread)
            if searched > most:
                return False
            data = await self._process.stdout.read(_PIECE)
            if not data:
                return True
            self._unread += data
        self._take(found + len(mark))
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
            data = await self._process.stdout.read(_PIECE)  # its `readline` has a limit
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
        return await self._process.stdout.read(size)

    def _take(self, size: int) -> bytes:
        data = bytes(self._unread[:size])
        del self._unread[:size]
        return data
