"""One command at a time changes a cluster. The kernel frees the lock when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO

from config.errors import InputError, StateError
from config.files import full_disks
from config.target import Target
from provision.records.record import folder


@contextmanager
def cluster_lock(name: str, command: str, target: Target) -> Iterator[None]:
    """`command` alone changes the cluster until the block ends.

    Raises InputError that names the holder's process and command when another one does.
    """
    path = folder(name, target) / "lock"
    with full_disks(), _opened(path) as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid, _, what = file.read().partition(" ")
            raise InputError(
                f"cluster '{name}' is being changed by `{what or 'gpuctl'}` (process {pid or '?'})",
                "wait for it, or end it, then repeat",
            ) from None
        except OSError as error:
            raise _no_locks(path, error) from error
        file.truncate(0)
        file.write(f"{os.getpid()} {command}")
        file.flush()
        yield


def is_locked(name: str, target: Target) -> bool:
    """Whether a command changes the cluster right now."""
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


def _opened(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise StateError(
            f"{path} cannot be written: {error.strerror}", "make room on that disk"
        ) from error


def _no_locks(path: Path, error: OSError) -> StateError:
    """NFS without a lock daemon, for one: ENOLCK."""
    return StateError(
        f"{path} cannot be locked: {error.strerror}",
        "keep gpuctl's state on a disk of this machine: set XDG_STATE_HOME",
    )
