"""A worker as the supervisor sees it: control lines down, events up, and how it ended."""

from __future__ import annotations

import asyncio
import contextlib
import json
from asyncio.subprocess import Process
from collections.abc import AsyncIterator

from engine.agent.journal import Message


class Channel:
    """The pipes of one worker's process."""

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._complaints = asyncio.ensure_future(process.stderr.read())
        self._given_up = ""

    def send(self, message: Message) -> None:
        """The message is on its way; a worker that is gone takes none."""
        with contextlib.suppress(ConnectionError, RuntimeError):
            self._stdin.write(json.dumps(message).encode() + b"\n")

    async def events(self) -> AsyncIterator[Message]:
        """The worker's events until it is gone. What is not JSON came from the way there."""
        while True:
            try:
                line = await self._stdout.readline()
            except (ValueError, ConnectionError):
                self.give_up("its worker sent what is not an event")
                return
            if not line:
                return
            with contextlib.suppress(ValueError):
                event = json.loads(line)
                if isinstance(event, dict) and isinstance(event.get("kind"), str):
                    yield event

    def give_up(self, reason: str) -> None:
        """The way to the worker is cut, which ends the worker too; `ended` tells `reason`."""
        self._given_up = self._given_up or reason
        with contextlib.suppress(ProcessLookupError):
            self._process.kill()

    async def ended(self) -> str:
        """Returns when the process has ended: why, in one line."""
        self._stdin.close()
        code = await self._process.wait()
        await asyncio.wait([self._complaints], timeout=1)
        complaints = b""
        if self._complaints.done():
            complaints = self._complaints.result()
        else:
            self._complaints.cancel()
        if self._given_up:
            return self._given_up
        lines = complaints.decode("utf-8", "replace").strip().splitlines()
        return lines[-1].strip() if lines else f"its worker ended with {code}"
