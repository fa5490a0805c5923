"""Frames between `srun` and its part on a node: a kind, a task's number, and bytes."""

from __future__ import annotations

import os
import struct
import threading
from typing import NamedTuple

_HEADER = struct.Struct(">cII")
EVERY = 0xFFFFFFFF
SPEC, INPUT, END_OF_INPUT, SIGNAL = b"S", b"I", b"E", b"K"
STDOUT, STDERR, EXITED, FAULT = b"O", b"R", b"X", b"F"


class Frame(NamedTuple):
    """A frame: what it is, the number of its task, and its bytes."""

    kind: bytes
    task: int
    data: bytes


class FrameWriter:
    """Writes frames to a descriptor. Thread-safe; a reader that has left is no error."""

    def __init__(self, descriptor: int) -> None:
        self._descriptor = descriptor
        self._lock = threading.Lock()
        self.is_broken = False

    def send(self, kind: bytes, task: int = 0, data: bytes = b"") -> None:
        """Write a frame as a whole."""
        left = memoryview(_HEADER.pack(kind, task, len(data)) + data)
        with self._lock:
            try:
                while left and not self.is_broken:
                    left = left[os.write(self._descriptor, left) :]
            except OSError:
                self.is_broken = True


def read_frame(descriptor: int) -> Frame | None:
    """Return the next frame; None at the end."""
    header = _read(descriptor, _HEADER.size)
    if header is None:
        return None
    kind, task, size = _HEADER.unpack(header)
    data = _read(descriptor, size)
    return None if data is None else Frame(kind, task, data)


def _read(descriptor: int, size: int) -> bytes | None:
    parts = b""
    while len(parts) < size:
        part = os.read(descriptor, size - len(parts))
        if not part:
            return None
        parts += part
    return parts
