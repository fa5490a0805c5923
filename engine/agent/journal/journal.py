"""The run's journal on the head node, as the supervisor writes it.

A full disk does not end a run: space for the important events is reserved from the beginning, and
the job's output is dropped and counted instead.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path
from typing import TYPE_CHECKING, TypeVar

from engine.agent.journal.clock import RunClock
from engine.agent.journal.journal_file import JournalFile
from engine.agent.journal.rotating_file import SIZE, budget_on
from engine.contract.event import Event, change, to_line
from engine.contract.head_events import Evidence
from engine.contract.worker_events import DiskFull, Output

if TYPE_CHECKING:
    import asyncio

E = TypeVar("E", bound=Event)
RESERVE = "journal.reserve"
RESERVED = 4 << 20  # bytes, for the end events of 2,048 nodes and their texts
NOT_STORED = "the run's output is not stored any more: "
_BULK = (Output, Evidence)


class Journal:
    """The journal, and its followers, which it wakes for new events.

    It keeps `reserved` bytes of the disk free. It may have `budget` bytes, by default a part of
    the disk, in pieces of `piece`.
    """

    def __init__(
        self,
        path: Path,
        *,
        reserved: int = RESERVED,
        budget: int | None = None,
        piece: int = SIZE,
    ) -> None:
        self.folder = path.parent
        self.clock = RunClock()
        """The clock of its events."""
        self.dropped = 0
        """Number of events that the disk had no space for."""
        self.write_error = ""
        """The system's error text for them; empty while everything can be written."""
        self._file = JournalFile(path, budget or budget_on(path.parent), piece)
        self._file.cut()  # a line that a killed supervisor left incomplete
        self._reserve = self.folder / RESERVE
        self._followers: set[asyncio.StreamWriter] = set()
        with contextlib.suppress(OSError):  # the disk is full already: `append` reports it
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, reserved)
            finally:
                os.close(descriptor)

    def take_up(self, clock: float | None, write_error: str, missing: int) -> None:
        """Go on as the journal of an earlier supervisor, with what its events say.

        `clock` is the offset of its clock, None if it has no event yet. `missing` events of
        workers were not stored because of `write_error`, if that is not empty.
        """
        if clock is not None:
            self.clock = RunClock(clock)
        if write_error:
            self.write_error, self.dropped = write_error, max(1, missing)

    def append(self, event: E) -> E:
        """Append the event to the file, wake every follower, and return the event with its time.

        On a full disk, events are dropped and counted in `dropped`, output first.
        """
        if not event.time:  # no worker has set it
            event = change(event, time=self.clock.now())
        self._store(event)
        return event

    def _store(self, event: Event) -> None:
        """Append the event to the file, and wake every follower."""
        if self.write_error and isinstance(event, _BULK):
            self.dropped += 1
            return
        line = to_line(event).encode() + b"\n"
        try:
            self._file.append_line(line)
        except OSError as error:
            if self.write_error:  # the second failure: the reserve is used up too
                self.dropped += 1
                return
            self._make_room(error)
            self._store(event)
        for follower in self._followers:
            # One unread wake-up is enough: a follower reads to the end of the file. One that has
            # left stays until its task notices, and asyncio prints a warning for each write to it.
            if not follower.is_closing() and follower.transport.get_write_buffer_size() == 0:
                follower.write(b"\n")

    def _make_room(self, error: OSError) -> None:
        """Free the reserve for the important events, and report the full disk."""
        self.write_error = os.strerror(error.errno or 0)
        with contextlib.suppress(OSError):  # it was never created
            self._reserve.unlink()
        self.append(DiskFull(rank=0, text=f"{NOT_STORED}{self.write_error}"))

    def add_follower(self, follower: asyncio.StreamWriter) -> None:
        """Send `follower` a byte whenever there is more to read."""
        self._followers.add(follower)

    def remove_follower(self, follower: asyncio.StreamWriter) -> None:
        """Stop waking `follower`."""
        self._followers.discard(follower)

    def finish(self) -> None:
        """Wait until its complete pieces are compressed: their files stay as they are then."""
        self._file.finish()

    def close(self) -> None:
        """Close the file and free the reserve."""
        self._file.close()
        self._reserve.unlink(missing_ok=True)
