"""A cluster's lock: one command at a time changes it.

On this machine the kernel frees a dead holder's lock. The lock of a shared cluster, which other
machines see, is in provision/records/shared_lock.py.
"""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from config.errors import InputError, StateError
from config.files import disk_errors
from config.target import Target
from provision.records.record import folder
from provision.records.shared import pull
from provision.records.shared_lock import is_held, shared_lock


@contextmanager
def cluster_lock(name: str, command: str, target: Target) -> Iterator[None]:
    """Hold the cluster's lock for `command` until the block ends.

    Raises InputError with the holder's process and command if another command holds it. This
    machine's copy of a shared cluster is renewed before the block begins.
    """
    path = folder(name, target) / "lock"
    with disk_errors(), _open(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid, _, what = file.read().partition(" ")
            raise InputError(
                f"cluster '{name}' is being changed by `{what or 'gpuctl'}` (process {pid or '?'})",
                "wait for it or end it, then repeat this command",
            ) from None
        except OSError as error:
            raise _no_locks(path, error) from error
        file.truncate(0)
        file.write(f"{os.getpid()} {command}")
        file.flush()
        with shared_lock(name, command, target):
            pull(name, target)
            yield


def is_locked(name: str, target: Target) -> bool:
    """Return whether a command is changing the cluster."""
    if is_held(name, target):
        return True
    path = folder(name, target) / "lock"
    if not path.exists():
        return False
    with path.open() as file:
        try:
            fcntl.flock(file, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            return True
        except OSError as error:
            raise _no_locks(path, error) from error
    return False


def _open(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise StateError(
            f"{path} cannot be written: {error.strerror}", "free space on that disk"
        ) from error


def _no_locks(path: Path, error: OSError) -> StateError:
    """Return the error for a file system without locks, such as NFS without a lock daemon."""
    return StateError(
        f"{path} cannot be locked: {error.strerror}",
        "keep gpuctl's state on a disk of this machine: set XDG_STATE_HOME",
    )
