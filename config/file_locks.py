"""Locks on open files, between the processes of one machine.

The kernel releases a lock when its file is closed, also if the process dies.
"""

import fcntl
import os
import struct
from collections.abc import Callable
from typing import IO, Any

_FLOCK = "hhqqi"  # struct flock of 64-bit Linux: type, whence, start, length, pid


def try_lock(file: IO[Any]) -> bool:
    """Lock the file; return False if another process holds its lock."""
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True


def wait_for_lock(file: IO[Any], on_wait: Callable[[], object] | None = None) -> None:
    """Lock the file; if another process holds its lock, call `on_wait`, then wait."""
    if try_lock(file):
        return
    if on_wait is not None:
        on_wait()
    fcntl.flock(file, fcntl.LOCK_EX)


def is_locked(file: IO[Any]) -> bool:
    """Return whether a process holds the lock; the file must not be locked by this one.

    If none does, this process holds it for a moment, in which `try_lock` of another one fails.
    """
    try:
        fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    fcntl.flock(file, fcntl.LOCK_UN)
    return False


def lock_as_process(file: IO[Any]) -> None:
    """Lock the file, so that `holding_process` knows this process.

    Raises BlockingIOError if another process has locked it.
    """
    fcntl.lockf(file, fcntl.LOCK_EX | fcntl.LOCK_NB)


def holding_process(file: IO[Any]) -> int | None:
    """Return the id of the process that locked the file by `lock_as_process`; None if none did.

    It takes no lock, which could refuse another process. It works on Linux alone. The id is 0 if
    the process is in another PID namespace (F_GETLK of Linux 6.18, tried on 2026-11-23).
    """
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    kind, _, _, _, pid = struct.unpack(_FLOCK, fcntl.fcntl(file, fcntl.F_GETLK, question))
    return None if kind == fcntl.F_UNLCK else int(pid)
