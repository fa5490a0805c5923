"""The run's journal on the head node: JSON lines that are only ever appended to.

A reader's place in it is a byte offset, so that a client that was away goes on where it was.
Lines are ASCII: bytes and characters are the same count on both sides.
"""

from __future__ import annotations

import json
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import asyncio

Message = dict[str, Any]


class Journal:
    """Appends events and wakes those that follow."""

    def __init__(self, path: Path) -> None:
        self.folder = path.parent
        path.touch(mode=0o600)
        self._file = path.open("ab", buffering=0)
        self._followers: set[asyncio.StreamWriter] = set()

    def append(self, kind: str, **fields: Any) -> None:
        """The event is in the file, and every follower knows that there is more to read."""
        event: Message = {"kind": kind, "time": round(time.time(), 3)}
        event.update(fields)
        self._file.write(json.dumps(event).encode() + b"\n")
        for follower in self._followers:
            # One unread wake-up is enough: a follower reads to the end of the file.
            if follower.transport.get_write_buffer_size() == 0:
                follower.write(b"\n")

    def add_follower(self, follower: asyncio.StreamWriter) -> None:
        """`follower` gets a byte whenever there is more to read."""
        self._followers.add(follower)

    def remove_follower(self, follower: asyncio.StreamWriter) -> None:
        """`follower` is left alone."""
        self._followers.discard(follower)

    def close(self) -> None:
        """The file is closed; nothing can be appended."""
        self._file.close()
