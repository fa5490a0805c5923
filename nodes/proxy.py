"""A command whose standard input and output are the connection to a node."""

import asyncio
import contextlib
import socket
from collections import deque
from collections.abc import Sequence

_LINES_KEPT = 5


class Proxy:
    """A running proxy command. `wire` is an open socket connected to its input and output."""

    def __init__(self, process: asyncio.subprocess.Process, wire: socket.socket) -> None:
        assert process.stderr is not None
        self.wire = wire
        self._process = process
        self._said: deque[str] = deque(maxlen=_LINES_KEPT)
        self._listening = asyncio.create_task(self._listen(process.stderr))

    @classmethod
    async def start(cls, command: Sequence[str]) -> "Proxy":
        """Start the command; raises OSError if that fails."""
        wire, far_end = socket.socketpair()
        wire.setblocking(False)
        with far_end:
            # In a new session, because Ctrl-C must not end it before gpuctl has cleaned up through
            # it.
            process = await asyncio.create_subprocess_exec(
                *command,
                stdin=far_end.fileno(),
                stdout=far_end.fileno(),
                stderr=asyncio.subprocess.PIPE,
                start_new_session=True,
            )
        return cls(process, wire)

    async def complaint(self) -> str:
        """Return the last line of its standard error after a short wait; empty if there is none."""
        with contextlib.suppress(TimeoutError):  # it still runs and has written nothing
            async with asyncio.timeout(5):
                await self._listening
        return self._said[-1].removeprefix("gpuctl: error: ") if self._said else ""

    async def end(self) -> None:
        """End the command and close the socket."""
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
