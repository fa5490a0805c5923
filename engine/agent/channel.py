"""A worker as the supervisor sees it: control lines down, events up, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio.subprocess import Process
from collections.abc import AsyncIterator

from engine.agent.journal import Message

SSH_FAILED = 255  # ssh's exit status for a failure of its own (ssh(1))
LINE_LIMIT = 1 << 20  # bytes of one JSON line: 32 KiB of output, escaped at worst 12-fold
_TURN = 2048  # bytes that one node's events may take before it is the other nodes' turn
_COMPLAINTS = 64 * 1024  # bytes of standard error that are kept


class Channel:
    """The pipes of one worker's process.

    `reached` is set when the first bytes have come from the other side.
    """

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._complaints = bytearray()
        self._complaining = asyncio.ensure_future(self._keep_complaints(process.stderr))
        self._given_up = ""
        self.reached = asyncio.Event()

    def send(self, message: Message) -> None:
        """The message is on its way; a worker that is gone takes none."""
        with contextlib.suppress(ConnectionError, RuntimeError):  # `ended` tells that it is gone
            self._stdin.write(json.dumps(message).encode() + b"\n")

    async def events(self) -> AsyncIterator[Message]:
        """The worker's events until it is gone. What is not JSON came from the way there.

        All nodes take turns, so that thousands that flood their supervisor do not keep it from
        anything else.
        """
        begun = bytearray()  # a line whose end has not come
        while data := await self._read():
            self.reached.set()
            begun += data
            if len(begun) > LINE_LIMIT:
                self.give_up("its worker sent what is not an event")
                await self._drain()
                return
            if b"\n" in data:
                *lines, begun = begun.split(b"\n")
                for line in lines:
                    event = _event(line)
                    if event is not None:
                        yield event
            await asyncio.sleep(0)

    async def _drain(self) -> None:
        """Read on to the end: asyncio counts no process as ended of which output waits."""
        while await self._read():
            pass

    async def _read(self) -> bytes:
        """Return some bytes of the worker; none when it is gone."""
        try:
            return await self._stdout.read(_TURN)
        except ConnectionError:
            return b""

    def give_up(self, reason: str) -> None:
        """The way to the worker is cut, which ends the worker too; `ended` tells `reason`."""
        self._given_up = self._given_up or reason
        with contextlib.suppress(ProcessLookupError):  # it has ended by itself
            self._process.kill()

    async def ended(self) -> str:
        """Returns when the process has ended: why, in one line."""
        self._stdin.close()
        code = await self._process.wait()
        await asyncio.wait([self._complaining], timeout=1)
        self._complaining.cancel()
        lines = self.complaints.strip().splitlines()
        if self._given_up:
            return self._given_up
        if lines:
            return lines[-1].strip()
        if code == SSH_FAILED:
            return "the ssh connection to it ended"
        return f"its worker ended with {code}"

    async def close(self) -> None:
        """Cut the way if it is open, and return when its process has ended."""
        if not self._given_up:  # a second signal would take its exit status from those who wait
            self.give_up("the run is over")
        self._stdin.close()
        await asyncio.wait([asyncio.ensure_future(self._process.wait())], timeout=1)
        self._complaining.cancel()

    @property
    def is_unreached(self) -> bool:
        """Whether nothing ever came from the other side, and ssh failed or was given up."""
        failed = self._process.returncode == SSH_FAILED or bool(self._given_up)
        return failed and not self.reached.is_set()

    @property
    def complaints(self) -> str:
        """What the process has said on its standard error so far."""
        return self._complaints.decode("utf-8", "replace")

    async def _keep_complaints(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(4096):
            self._complaints += data
            del self._complaints[:-_COMPLAINTS]


def _event(line: bytearray) -> Message | None:
    """Return the event; None for what is none: words of a login on the way to the worker."""
    with contextlib.suppress(ValueError):  # words of a login
        event = json.loads(line)
        if isinstance(event, dict) and isinstance(event.get("kind"), str):
            return event
    return None
