"""A cluster's lock: one command at a time changes it.

On this machine the kernel frees a dead holder's lock. The lock of a shared cluster, which other
machines see, is in provision/state/shared_lock.py.
"""

import os
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import IO

from config import file_locks
from config.errors import InputError, StateError
from config.files import disk_error, disk_errors
from config.polling import Timeouts, poll
from config.target import Target
from provision.state.shared import LOCK_FILE, SharedFiles, cluster_folder
from provision.state.shared_lock import is_held, shared_lock

_QUESTION = Timeouts(1, 0.02)
"""How long a lock may be held that is no command's: `is_locked` of another process asks for it."""


@contextmanager
def cluster_lock(
    name: str, command: str, files: SharedFiles, *, is_removal: bool = False
) -> Iterator[None]:
    """Hold the cluster's lock for `command` until the block ends (`ClusterStore.lock`)."""
    path = cluster_folder(name, files.target) / LOCK_FILE
    tolerated: tuple[type[StateError], ...] = (StateError,) if is_removal else ()
    with disk_errors(), ExitStack() as stack:
        file = _open_existing(path) if is_removal else None
        with suppress(*tolerated):  # a removal needs no file
            file = file or _open(path)
        if file is not None:
            stack.enter_context(file)
            with suppress(*tolerated):  # the lock is held, its holder cannot be written
                _hold(file, path, name, command)
        stack.enter_context(shared_lock(name, command, files))
        yield


def _open_existing(path: Path) -> IO[str] | None:
    """Open the lock's file if there is one, also on a disk that cannot be written."""
    for mode in ("r+", "r"):
        with suppress(OSError):  # the next mode is tried
            return path.open(mode)
    return None


def _hold(file: IO[str], path: Path, name: str, command: str) -> None:
    """Lock the open file, and write who holds it."""
    try:
        is_ours = poll(lambda: file_locks.try_lock(file) or None, _QUESTION)
    except OSError as error:
        raise _no_locks(path, error) from error
    if not is_ours:
        file.seek(0)
        pid, _, what = file.read().partition(" ")
        raise InputError(
            f"cluster '{name}' is being changed by `{what or 'gpuctl'}` (process {pid or '?'})",
            "wait for it or end it, then repeat this command",
        )
    if not file.writable():
        return
    # Without the file's buffer, which would be written again when the file is closed.
    with disk_errors():
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"{os.getpid()} {command}".encode())


def is_locked(name: str, target: Target) -> bool:
    """Return whether a command is changing the cluster."""
    if is_held(name, target):
        return True
    path = cluster_folder(name, target) / LOCK_FILE
    if not path.exists():
        return False
    with path.open() as file:
        try:
            return file_locks.is_locked(file)
        except OSError as error:
            raise _no_locks(path, error) from error


def _open(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise disk_error(path, error) from error


def _no_locks(path: Path, error: OSError) -> StateError:
    """Return the error for a file system without locks, such as NFS without a lock daemon."""
    return StateError(
        f"{path} cannot be locked: {error.strerror}",
        "keep gpuctl's state on a disk of this machine: set XDG_STATE_HOME",
    )
