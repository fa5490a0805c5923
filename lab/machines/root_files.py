"""Files of a machine that the host's root writes, while the machine may be at work on them.

The machine's root may plant links where the host writes: to `/etc` of the host, or `..` without
end. So each folder is opened as if the machine's root were `/` (openat2(2), RESOLVE_IN_ROOT), and
each file is a new one in a folder that is open.
"""

import ctypes
import errno
import os
import platform
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath

from config.errors import LabError

_OPENAT2 = 437
"""The number of the call on every architecture but alpha (Linux, include/uapi/asm-generic/unistd.h;
since 5.6)."""
_IN_ROOT, _NO_MAGIC_LINKS = 0x10, 0x02
_FOLDER = os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC
_ATTEMPTS = 100
_libc = ctypes.CDLL(None, use_errno=True)


def write_file(root: Path, path: str, content: bytes, mode: int = 0o644) -> None:
    """Write a new file of a machine in place of an older one; the machine's root owns it.

    `root` is the machine's root folder, `path` has no leading slash. Missing folders are made.
    Raises LabError if something of the machine is in the way.
    """
    owner = root.stat()
    with _explain(path), _open_folder(root, PurePosixPath(path).parent, owner) as folder:
        name = PurePosixPath(path).name
        with suppress(FileNotFoundError):  # the file is new
            os.unlink(name, dir_fd=folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(name, flags, mode, dir_fd=folder), "wb") as file:
            file.write(content)
            os.fchmod(file.fileno(), mode)
            os.fchown(file.fileno(), owner.st_uid, owner.st_gid)


def remove_file(root: Path, path: str) -> None:
    """Remove a file of a machine, or a link in its place. Raises LabError as `write_file` does."""
    with _explain(path), suppress(FileNotFoundError):  # it is removed already
        folder = _open_in_root(root, PurePosixPath(path).parent)
        try:
            os.unlink(PurePosixPath(path).name, dir_fd=folder)
        finally:
            os.close(folder)


@contextmanager
def _open_folder(root: Path, path: PurePosixPath, owner: os.stat_result) -> Iterator[int]:
    """Yield a descriptor of the machine's folder, which is made if it is missing."""
    for part in [*reversed(path.parents), path]:
        with suppress(FileNotFoundError):  # it is made below
            os.close(_open_in_root(root, part))
            continue
        above = _open_in_root(root, part.parent)
        try:
            os.mkdir(part.name, 0o755, dir_fd=above)
            os.chown(part.name, owner.st_uid, owner.st_gid, dir_fd=above, follow_symlinks=False)
        finally:
            os.close(above)
    folder = _open_in_root(root, path)
    try:
        yield folder
    finally:
        os.close(folder)


def _open_in_root(root: Path, path: PurePosixPath) -> int:
    """Return a descriptor of the folder; links on the way lead nowhere outside of `root`."""
    top = os.open(root, _FOLDER)
    how = struct.pack("QQQ", _FOLDER, 0, _IN_ROOT | _NO_MAGIC_LINKS)
    try:
        for _ in range(_ATTEMPTS):  # EAGAIN: something was renamed meanwhile
            descriptor = _libc.syscall(_OPENAT2, top, os.fsencode(path), how, len(how))
            if descriptor >= 0:
                return int(descriptor)
            if ctypes.get_errno() != errno.EAGAIN:
                break
        number = ctypes.get_errno()
        raise OSError(number, os.strerror(number), str(path))
    finally:
        os.close(top)


@contextmanager
def _explain(path: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        if error.errno == errno.ENOSYS:
            message = f"Linux {platform.release()} lacks openat2"
            raise LabError(message, "the lab needs Linux 5.19 or newer") from error
        reason = error.strerror or str(error)
        raise LabError(
            f"/{path} of a machine cannot be written: {reason}", "launch another machine"
        ) from error
