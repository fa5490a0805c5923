"""One command at a time changes a cluster. The kernel frees the lock when its holder dies."""

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager

from config.errors import InputError
from config.target import Target
from provision.record import folder


@contextmanager
def cluster_lock(name: str, command: str, target: Target) -> Iterator[None]:
    """`command` alone changes the cluster until the block ends.

    Raises InputError that names the holder's process and command when another one does.
    """
    path = folder(name, target) / "lock"
    path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
    with path.open("a+") as file:
        try:
            fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            file.seek(0)
            pid, _, what = file.read().partition(" ")
            raise InputError(
                f"cluster '{name}' is being changed by `{what or 'gpuctl'}` (process {pid or '?'})",
                "wait for it, or end it, then repeat",
            ) from None
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
    return False
