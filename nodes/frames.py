"""Bytes in both directions between a client and the broker: frames of a length and as many bytes.

The length has four bytes, the most significant first. A frame of length 0 ends the stream.
"""

import asyncio

FRAME = 1 << 16
"""Bytes to read at once."""
_LENGTH = 4


class Disconnected(Exception):
    """The error that the other side has ended before the stream was over."""


class FrameWriter:
    """A stream of frames to the other side. `drain` waits for a side that reads slowly."""

    def __init__(self, writer: asyncio.StreamWriter) -> None:
        self._writer = writer
        self._is_over = False

    def write(self, data: bytes, /) -> None:
        """Send the bytes as one frame; nothing for no bytes."""
        if data:
            self._writer.write(len(data).to_bytes(_LENGTH, "big") + data)

    async def drain(self) -> None:
        """Wait until more can be sent; ConnectionError if the other side has ended."""
        await self._writer.drain()

    def write_eof(self) -> None:
        """End the stream; do nothing the second time."""
        if not self._is_over:
            self._is_over = True
            self._writer.write(bytes(_LENGTH))


class FrameReader:
    """A stream of frames from the other side."""

    def __init__(self, reader: asyncio.StreamReader) -> None:
        self._reader = reader
        self._left = 0
        self._is_over = False

    async def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end. Raises Disconnected."""
        if self._is_over:
            return b""
        try:
            if not self._left:
                self._left = int.from_bytes(await self._reader.readexactly(_LENGTH), "big")
            data = await self._reader.read(min(size, self._left))
        except (OSError, asyncio.IncompleteReadError) as error:
            raise Disconnected from error
        if not data and self._left:
            raise Disconnected
        self._left -= len(data)
        self._is_over = not data
        return data
