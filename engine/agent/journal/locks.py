"""Locks on files and folders of this machine, held until a process ends.

They are Linux's open file description locks (fcntl(2), F_OFD_SETLK). `is_held` asks about them
without taking anything. A question that takes the lock for a moment, as flock(2) needs it, shows
others a lock that nobody holds.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
from collections.abc import Iterator
from pathlib import Path

_GET, _SET = 36, 37
"""F_OFD_GETLK and F_OFD_SETLK (linux/include/uapi/asm-generic/fcntl.h): some builds of Python 3.9
do not name them."""
_FLOCK = struct.Struct("@hhqqi0q")
"""struct flock of 64-bit Linux: type, whence, start, length (0 is all), pid (0 is required)."""


@contextlib.contextmanager
def locked(runs: Path, file: str = "") -> Iterator[None]:
    """Wait for the lock of the folder `runs`, or of a file in it, create both, and hold the lock.

    All changes of the queue and all creations and removals of runs' folders are made under the lock
    of the folder.
    """
    runs.mkdir(mode=0o755, parents=True, exist_ok=True)
    flags = os.O_RDWR | os.O_CREAT if file else os.O_RDONLY
    descriptor = os.open(runs / file, flags, 0o600)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX)
        yield
    finally:
        os.close(descriptor)


def protect_folder(folder: Path) -> None:
    """Lock the folder until this process ends, so that no other run removes it.

    Several processes may do that at a time.
    """
    _set(os.open(folder, os.O_RDONLY), fcntl.F_RDLCK)


def create_folder(folder: Path, *, exist_ok: bool = False) -> None:
    """Create a run's folder and lock it (protect_folder); nobody sees it without the lock.

    Raises FileExistsError if it exists and `exist_ok` is false.
    """
    with locked(folder.parent):
        folder.mkdir(mode=0o755, exist_ok=exist_ok)
        protect_folder(folder)


def take(path: Path) -> None:
    """Create the file, if it is missing, and lock it alone until this process ends.

    Raises BlockingIOError if another process holds it.
    """
    _set(os.open(path, os.O_RDWR | os.O_CREAT, 0o600), fcntl.F_WRLCK)


def is_held(path: Path) -> bool:
    """Return whether a process holds the folder (`protect_folder`) or the file (`take`)."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        question = _FLOCK.pack(fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
        kind, *_ = _FLOCK.unpack(fcntl.fcntl(descriptor, _GET, question))
    finally:
        os.close(descriptor)
    return bool(kind != fcntl.F_UNLCK)


def _set(descriptor: int, kind: int) -> None:
    """Set the lock; it is held as long as this process has the descriptor."""
    try:
        fcntl.fcntl(descriptor, _SET, _FLOCK.pack(kind, os.SEEK_SET, 0, 0, 0))
    except OSError:
        os.close(descriptor)
        raise
