"""Write files so that gpuctl can read them again after any crash."""

import errno
import os
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from config.errors import StateError

_NO_ROOM = (errno.ENOSPC, errno.EDQUOT, errno.EROFS)


def write_whole(path: Path, text: str) -> None:
    """Write the file whole or not at all, flushed to the disk, and readable for its owner alone.

    A missing folder is made. Raises StateError if the disk is full or read-only; the file then
    keeps its former text.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        temporary.replace(path)
    except OSError as error:
        with suppress(OSError):  # a left-over temporary file does no harm
            temporary.unlink()
        raise unwritable(path, error.strerror or str(error)) from error


def write_new(path: Path, text: str) -> None:
    """Write the file whole, unless it exists; of two processes at once, one writes it.

    Raises StateError as `write_whole` does.
    """
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    write_whole(temporary, text)
    try:
        os.link(temporary, path)
    except FileExistsError:
        pass  # nothing to do
    finally:
        temporary.unlink()


def unwritable(path: Path | str, why: str) -> StateError:
    """Return the complaint about a file of gpuctl's for which its disk has no room."""
    return StateError(
        f"{path} cannot be written: {why}",
        "make room on that disk; `gpuctl status` shows what exists and bills",
    )


@contextmanager
def full_disks() -> Iterator[None]:
    """Raise StateError instead of an OSError that says that a disk is full, or read-only."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM:
            raise
        where = error.filename or "a file in gpuctl's state folder"
        raise unwritable(where, error.strerror or str(error)) from error
