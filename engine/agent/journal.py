"""The run's journal on the head node: an append-only file of JSON lines.

A reader's position is a byte offset, so that a client can read on after a pause. Lines are ASCII,
so bytes and characters are the same count.

A full disk does not end a run: space for the important events is reserved from the beginning, and
the job's output is dropped and counted instead.
"""

from __future__ import annotations

import contextlib
import json
import os
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

Message = dict[str, Any]
RESERVE = "journal.reserve"
RESERVED = 4 << 20  # bytes, for the end events of 2,048 nodes and their texts
_BULK = ("output", "evidence")


class Journal:
    """The journal, and its followers, which it wakes for new events."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.dropped = 0
        """Number of events that the disk had no space for."""
        self.write_error = ""
        """The system's error text for them; empty while everything can be written."""
        path.touch(mode=0o600)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._file).st_size
        self._reserve = self.folder / RESERVE
        self._followers: set[asyncio.StreamWriter] = set()
        with contextlib.suppress(OSError):  # the disk is full already: `append` reports it
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVED)
            finally:
                os.close(descriptor)

    def append(self, kind: str, **fields: Any) -> None:
        """Append the event to the file and wake every follower.

        On a full disk, events are dropped and counted in `dropped`, output first.
        """
        if self.write_error and kind in _BULK:
            self.dropped += 1
            return
        event: Message = {"kind": kind, "time": round(time.time(), 3)}
        event.update(fields)
        line = json.dumps(event).encode() + b"\n"
        try:
            self._write(line)
        except OSError as error:
            if self.write_error:  # the second failure: the reserve is used up too
                self.dropped += 1
                return
            self._make_room(error)
            self.append(kind, **fields)
        for follower in self._followers:
            # One unread wake-up is enough: a follower reads to the end of the file.
            if follower.transport.get_write_buffer_size() == 0:
                follower.write(b"\n")

    def _write(self, line: bytes) -> None:
        """Append the whole line, or nothing."""
        written = 0
        try:
            while written < len(line):  # a disk that becomes full accepts only a part
                written += os.write(self._file, line[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += written

    def _make_room(self, error: OSError) -> None:
        """Free the reserve for the important events, and report the full disk."""
        self.write_error = os.strerror(error.errno or 0)
        with contextlib.suppress(OSError):  # it was never created
            self._reserve.unlink()
        text = f"the run's output is not stored any more: {self.write_error}"
        self.append("disk_full", rank=0, text=text)

    def add_follower(self, follower: asyncio.StreamWriter) -> None:
        """Send `follower` a byte whenever there is more to read."""
        self._followers.add(follower)

    def remove_follower(self, follower: asyncio.StreamWriter) -> None:
        """Stop waking `follower`."""
        self._followers.discard(follower)

    def close(self) -> None:
        """Close the file and free the reserve."""
        os.close(self._file)
        self._reserve.unlink(missing_ok=True)
