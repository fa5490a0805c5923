"""A command that is the connection to a node: its standard input and output are the wire."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Sequence

_LINES_KEPT = 5


class Proxy:
    """The command while it runs. `wire` is an open socket with the other side behind it."""

    def __init__(self, process: asyncio.subprocess.Process, wire: socket.socket) -> None:
        assert process.stderr is not None
        self.wire = wire
        self._process = process
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._listening = asyncio.create_task(self._listen(process.stderr))

    @classmethod
    async def start(cls, command: Sequence[str]) -> "Proxy":
        """The command runs; OSError where it cannot."""
        wire, far_end = socket.socketpair()
        wire.setblocking(False)
        with far_end:
            # A session of its own: Ctrl-C is for this process, which still has things to end.
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=far_end.fileno(),
                stdout=far_end.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        return cls(process, wire)

    async def complaint(self) -> str:
        """The last that it said, waited for a moment; empty where it said nothing."""
        with contextlib.suppress(TimeoutError):  # it is still at work, and has said nothing
            async with asyncio.timeout(5):
                await self._listening
        return self._said[-1].removeprefix("gpuctl: error: ") if self._said else ""

    async def end(self) -> None:
        """It has ended."""
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                self._process.terminate()
        await self._process.wait()
        self._listening.cancel()
        self.wire.close()

    async def _listen(self, stderr: asyncio.StreamReader) -> None:
        async for line in stderr:
            if text := line.decode(errors="replace").strip():
                self._said.append(text)
