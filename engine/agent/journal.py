"""The run's journal on the head node: JSON lines that are only ever appended to.

A reader's place in it is a byte offset, so that a client that was away goes on where it was.
Lines are ASCII: bytes and characters are the same count on both sides.

A disk that is full ends no run: room for the events that decide is kept free from the beginning,
and what the job prints is dropped and counted instead.
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
RESERVED = 4 << 20  # bytes: the ends of 2,048 nodes, with what is told of them
_BULK = ("output", "evidence")


class Journal:
    """Appends events and wakes those that follow."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        self.dropped = 0
        """Events that the disk had no room for."""
        self.complaint = ""
        """Why, as the system says it; empty as long as all could be written."""
        path.touch(mode=0o600)
        self._file = os.open(path, os.O_WRONLY | os.O_APPEND)
        self._size = os.fstat(self._file).st_size
        self._reserve = self.folder / RESERVE
        self._followers: set[asyncio.StreamWriter] = set()
        with contextlib.suppress(OSError):  # full from the beginning: `append` says so
            descriptor = os.open(self._reserve, os.O_WRONLY | os.O_CREAT, 0o600)
            try:
                os.posix_fallocate(descriptor, 0, RESERVED)
            finally:
                os.close(descriptor)

    def append(self, kind: str, **fields: Any) -> None:
        """Add the event to the file, and tell every follower that there is more to read.

        What a full disk has no room for is counted in `dropped`: output first.
        """
        if self.complaint and kind in _BULK:
            self.dropped += 1
            return
        event: Message = {"kind": kind, "time": round(time.time(), 3)}
        event.update(fields)
        line = json.dumps(event).encode() + b"\n"
        try:
            self._write(line)
        except OSError as error:
            if self.complaint:  # for the second time: the reserve is used up, too
                self.dropped += 1
                return
            self._make_room(error)
            self.append(kind, **fields)
        for follower in self._followers:
            # One unread wake-up is enough: a follower reads to the end of the file.
            if follower.transport.get_write_buffer_size() == 0:
                follower.write(b"\n")

    def _write(self, line: bytes) -> None:
        """Append the line, whole or not at all."""
        written = 0
        try:
            while written < len(line):  # a disk that becomes full takes the beginning
                written += os.write(self._file, line[written:])
        except OSError:
            os.ftruncate(self._file, self._size)
            raise
        self._size += written

    def _make_room(self, error: OSError) -> None:
        """Give up the reserve, so that what decides can still be written; say so first."""
        self.complaint = os.strerror(error.errno or 0)
        with contextlib.suppress(OSError):  # it was never made: no room is kept
            self._reserve.unlink()
        text = f"the run's output is not kept any more: {self.complaint}"
        self.append("disk_full", rank=0, text=text)

    def add_follower(self, follower: asyncio.StreamWriter) -> None:
        """`follower` gets a byte whenever there is more to read."""
        self._followers.add(follower)

    def remove_follower(self, follower: asyncio.StreamWriter) -> None:
        """`follower` is left alone."""
        self._followers.discard(follower)

    def close(self) -> None:
        """Close the file: nothing can be appended. The room that was kept free is given back."""
        os.close(self._file)
        self._reserve.unlink(missing_ok=True)
