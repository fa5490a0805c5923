"""A simulated worker as its supervisor has it: a socket in place of a process's pipes."""

from __future__ import annotations

from asyncio import StreamReader, StreamWriter


class Pipes:
    """The pipes of a worker without a process."""

    def __init__(self, stdout: StreamReader, stdin: StreamWriter) -> None:
        self.stdout, self.stdin = stdout, stdin
        self.stderr = StreamReader()
        self.stderr.feed_eof()
        self.returncode: int | None = None

    def kill(self) -> None:
        """End the connection."""
        self.stdin.transport.abort()

    async def wait(self) -> int:
        """Return at once: the end of a connection is the end of its process."""
        self.stdin.close()
        self.returncode = 0
        return 0
