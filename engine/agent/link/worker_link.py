"""The supervisor's connection to a worker: control lines out, events in, and its end."""

from __future__ import annotations

import asyncio
import contextlib
import json
import signal
from asyncio.subprocess import Process
from collections.abc import AsyncIterator
from dataclasses import dataclass

from engine.agent.journal.journal_file import Message
from engine.agent.link.units import UNIT_KILLED
from engine.contract.event import Event
from engine.contract.events import decode, event_class

LINE_LIMIT = 1 << 20  # bytes of one JSON line: 32 KiB of output, escaped at worst 12-fold
_TURN = 2048  # bytes to read from one node before the next node's turn
SSH_FAILED = 255  # ssh's exit status if ssh itself fails (ssh(1))
_ACKNOWLEDGE = 200  # events of output after which the worker learns that they are in the journal
_LEAVE_S = 0.5  # time for ssh to pass on that the worker has to end
_STDERR_BYTES = 64 * 1024  # last bytes of standard error to keep
BEGINS = "gpuctl-worker-begins"
"""A line of standard error in front of the worker's: ~/.bashrc may print what comes before."""


@dataclass(frozen=True)
class MalformedEvent(Event):
    """A worker's event of a known kind that cannot be read, in place of it; `why` names the field.

    It has no kind, so that no worker can send one.
    """

    of_kind: str
    why: str
    time: float = 0.0


class Channel:
    """The pipes of one worker's process.

    `reached` is set when the first bytes have come from the node. `is_attached` is true from the
    event `reached` of a worker that runs already.
    """

    def __init__(self, process: Process) -> None:
        assert process.stdin is not None
        assert process.stdout is not None
        assert process.stderr is not None
        self._process = process
        self._stdin, self._stdout = process.stdin, process.stdout
        self._stderr = bytearray()
        self._stderr_reader = asyncio.ensure_future(self._keep_stderr(process.stderr))
        self._given_up = ""
        self._acknowledged = 0
        self.is_attached = False
        self.no_worker = ""  # why the node has no worker, from the event `no_worker`
        self.reached = asyncio.Event()

    def send(self, message: Message) -> None:
        """Send the message; do nothing if the worker has ended."""
        with contextlib.suppress(ConnectionError, RuntimeError):  # `wait_for_end` returns why
            self._stdin.write(json.dumps(message).encode() + b"\n")

    def acknowledge(self, sequence: int, is_output: bool) -> None:
        """Acknowledge the worker's events up to this one; output in groups."""
        if not is_output or sequence - self._acknowledged >= _ACKNOWLEDGE:
            self._acknowledged = sequence
            self.send({"do": "received", "sequence": sequence})

    async def events(self) -> AsyncIterator[Event]:
        """Yield the worker's events until it ends; skip lines that ssh or a login printed.

        In place of one that cannot be read, yield a MalformedEvent. All nodes take turns, so that a
        flood of output from thousands of nodes does not block the supervisor.
        """
        begun = bytearray()  # an unfinished line
        while data := await self._read():
            self.reached.set()
            begun += data
            if len(begun) > LINE_LIMIT:
                self.give_up("its worker sent a line that is not an event")
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
        """Read to the end: asyncio does not report the end of a process with unread output."""
        while await self._read():
            pass

    async def _read(self) -> bytes:
        """Return some bytes from the worker; none when it has ended."""
        try:
            return await self._stdout.read(_TURN)
        except ConnectionError:
            return b""

    def give_up(self, reason: str) -> None:
        """End the worker and the connection; `wait_for_end` then returns `reason`."""
        if self._given_up:
            return
        self._given_up = reason
        self.send({"do": "leave"})
        self._stdin.close()
        asyncio.get_running_loop().call_later(_LEAVE_S, self._kill)

    def _kill(self) -> None:
        if self._process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended by itself
                self._process.kill()

    async def wait_for_end(self) -> str:
        """Wait until the process has ended; return the reason in one line."""
        self._stdin.close()
        code = await self._process.wait()
        await asyncio.wait([self._stderr_reader], timeout=1)
        self._stderr_reader.cancel()
        closing = asyncio.ensure_future(self._stdin.wait_closed())
        await asyncio.wait([closing], timeout=1)
        if closing.done():
            closing.exception()  # it ended before it read everything, which `code` says
        closing.cancel()
        lines = self.stderr_text.strip().splitlines()
        if self._given_up:
            return self._given_up
        if lines:
            return lines[-1].strip()
        if code == SSH_FAILED:
            return "the ssh connection to it ended"
        return f"its worker ended with {code}"

    async def close(self) -> None:
        """Close the connection, and wait a second for its process to end."""
        self.give_up("the run is over")
        self._stdin.close()
        await asyncio.wait([asyncio.ensure_future(self._process.wait())], timeout=_LEAVE_S + 1)
        self._stderr_reader.cancel()

    @property
    def is_given_up(self) -> bool:
        """Return whether the supervisor has ended the connection."""
        return bool(self._given_up)

    @property
    def was_killed(self) -> bool:
        """Return whether a signal may have ended the worker, or its connection on a living node."""
        code = self._process.returncode
        if code is None or code == SSH_FAILED:
            return False
        # `attach` ends with 0 when the worker does.
        has_lost_it = self.no_worker != "" or (self.is_attached and code == 0)
        return code < 0 or code in (UNIT_KILLED, 128 + signal.SIGKILL) or has_lost_it

    @property
    def is_broken(self) -> bool:
        """Return whether ssh ended after it had reached the node: the worker may still run."""
        return self._process.returncode == SSH_FAILED and self.reached.is_set()

    @property
    def is_unreached(self) -> bool:
        """Return whether ssh failed, was killed or given up before anything came from the node."""
        code = self._process.returncode
        failed = code == SSH_FAILED or (code is not None and code < 0) or bool(self._given_up)
        return failed and not self.reached.is_set()

    @property
    def stderr_text(self) -> str:
        """The standard error of the process so far, or all that ssh and a login have printed."""
        before, mark, after = self._stderr.decode("utf-8", "replace").partition(f"{BEGINS}\n")
        return after if mark else before

    async def _keep_stderr(self, stream: asyncio.StreamReader) -> None:
        while data := await stream.read(4096):
            self._stderr += data
            del self._stderr[:-_STDERR_BYTES]


def _event(line: bytearray) -> Event | None:
    """Return the event; None for other lines, which ssh or a login printed."""
    try:
        data = json.loads(line)
    except (ValueError, RecursionError):  # words of a login; a list in a list, and so on
        return None
    try:
        return decode(data)
    except ValueError as error:
        cls = event_class(data)
        return None if cls is None else MalformedEvent(cls.kind, str(error))
