"""Read files that a user names, with bounds, and write gpuctl's own, whole after any crash."""

import errno
import os
import pwd
import re
import stat
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from config.errors import GpuctlError, InputError, StateError
from config.folders import cache_home, config_home, home, state_home

LARGEST_FILE = 16 << 20
"""Bytes of the largest file that gpuctl reads whole."""
_NO_ROOM = (errno.ENOSPC, errno.EDQUOT)
_NO_ACCESS = (errno.EACCES, errno.EPERM, errno.EROFS)
_OPEN_ALREADY = re.compile(r"/dev/stdin|/(?:dev/fd|proc/self/fd)/(\d{1,9})", re.ASCII)
_PIECE = 1 << 20
_KINDS: tuple[tuple[Callable[[int], bool], str], ...] = (
    (stat.S_ISFIFO, "it is a pipe"),
    (stat.S_ISCHR, "it is a device"),
    (stat.S_ISBLK, "it is a device"),
    (stat.S_ISSOCK, "it is a socket"),
)


class NotRegular(OSError):
    """The error that a path leads to a pipe, a device or a socket."""


def open_regular(path: Path) -> int:
    """Return a descriptor of the regular file, for reading.

    Raises OSError for anything else, NotRegular where reading could wait or never end.
    """
    require_regular(path, path.stat().st_mode)
    # Opening a device may have an effect, so it is not opened to find out what it is.
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        require_regular(path, os.fstat(descriptor).st_mode)
    except OSError:
        os.close(descriptor)
        raise
    return descriptor


def read_regular(path: Path, most: int = LARGEST_FILE) -> bytes:
    """Return the content of the regular file. Raises OSError, EFBIG for more than `most` bytes."""
    with os.fdopen(open_regular(path), "rb") as file:
        content = file.read(most + 1) or b""  # files of /proc may have nothing yet
    return _require_size(path, content, most)


def read_named_file(path: Path, hint: str = "check the path", most: int = LARGEST_FILE) -> bytes:
    """Return the content of a regular file that a user names, or of standard input.

    A pipe that this process has open already may also be named, as `<(…)` in a shell does:
    /dev/stdin, /dev/fd/N. Raises InputError if it is anything else or has more than `most` bytes.
    """
    try:
        if is_open := _OPEN_ALREADY.fullmatch(str(path)):
            return _read_open(path, int(is_open[1] or 0), most)
        return read_regular(path, most)
    except ValueError as error:
        raise InputError(f"{path} cannot be read: no path has a NUL", hint) from error
    except OSError as error:
        if error.errno == errno.EFBIG:
            message = f"{path} has more than {_size(most)}"
            raise InputError(message, "is it the right file?") from error
        raise InputError(f"{path} cannot be read: {error.strerror}", hint) from error


def require_regular(path: Path, mode: int) -> None:
    """Raise OSError unless the mode is that of a regular file."""
    if stat.S_ISDIR(mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    for is_kind, reason in _KINDS:
        if is_kind(mode):
            raise NotRegular(errno.EINVAL, f"{reason}, not a regular file", str(path))


def write_named_file(path: Path, content: bytes) -> None:
    """Write a file that a user names. Raises OSError, also for a pipe that nobody reads."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NONBLOCK, 0o666)
    os.set_blocking(descriptor, True)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def _read_open(path: Path, descriptor: int, most: int) -> bytes:
    if stat.S_ISDIR(os.fstat(descriptor).st_mode):
        raise IsADirectoryError(errno.EISDIR, os.strerror(errno.EISDIR), str(path))
    content = b""
    while len(content) <= most and (data := os.read(descriptor, _PIECE)):
        content += data
    return _require_size(path, content, most)


def _require_size(path: Path, content: bytes, most: int) -> bytes:
    if len(content) > most:
        raise OSError(errno.EFBIG, f"it has more than {_size(most)}", str(path))
    return content


def _size(size: int) -> str:
    return f"{size >> 20} MiB" if size >= 1 << 20 else f"{size >> 10} KiB"


def write_whole(path: Path, text: str) -> None:
    """Write the file whole or not at all, flushed to the disk, and readable for its owner alone.

    A missing folder is made. Raises StateError if the disk is full or read-only, or if this user
    may not write there; the file then keeps its former text.
    """
    _write(path, text, Path.replace)


def write_new(path: Path, text: str) -> None:
    """Write the file whole, unless it exists; of two processes at once, one writes it.

    Raises StateError as `write_whole` does.
    """
    _write(path, text, _link)


def _link(temporary: Path, path: Path) -> None:
    with suppress(FileExistsError):  # another process has written it
        os.link(temporary, path)


def _write(path: Path, text: str, put: Callable[[Path, Path], object]) -> None:
    """Write the text to a temporary file, and let `put` give it its path."""
    temporary = path.with_name(f".{path.name}.{os.getpid()}.{threading.get_ident()}")
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            file.write(text)
            file.flush()
            os.fsync(descriptor)
        put(temporary, path)
    except OSError as error:
        raise disk_error(path, error) from error
    finally:
        with suppress(OSError):  # it has its path, or does no harm
            temporary.unlink()


def path_below(folder: Path, *names: str) -> Path:
    """Return the path of these names below the folder; the folder itself may be a link.

    Raises StateError for a name that leads elsewhere, and for a link on the way: gpuctl makes none.
    """
    path = folder.joinpath(*names)
    is_name = all(name not in ("", ".", "..") and not {"/", "\0"} & set(name) for name in names)
    if not is_name or os.path.realpath(path) != os.path.join(os.path.realpath(folder), *names):  # noqa: PTH118
        raise StateError(
            f"{str(path)!r} leads out of {folder}", "gpuctl makes no links there: remove it"
        )
    return path


ROOM = 1 << 20
"""The free bytes without which a disk counts as full. A command's records take some hundred KiB."""


def storage_problem(folder: Path) -> str:
    """Return why the folder takes no records; empty if it does. A missing folder is made."""
    probe = folder / f".room.{os.getpid()}"
    try:
        folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with probe.open("wb") as file:
            file.write(bytes(ROOM))
            file.flush()
            os.fsync(file.fileno())
    except OSError as error:
        return f"{folder} cannot be written: {error.strerror or error}"
    finally:
        with suppress(OSError):  # the folder is what is reported
            probe.unlink(missing_ok=True)
    return ""


def unwritable(path: Path | str, why: str) -> StateError:
    """Return the complaint about a file of gpuctl's for which its disk has no room."""
    return StateError(
        f"{path} cannot be written: {why}",
        "make room on that disk; `gpuctl status` shows what exists and bills",
    )


@contextmanager
def disk_errors() -> Iterator[None]:
    """Raise StateError instead of an OSError about a full or read-only disk, or about access."""
    try:
        yield
    except OSError as error:
        if error.errno not in _NO_ROOM and not is_access_error(error):
            raise
        if is_access_error(error) and not error.filename:
            raise  # not about a file
        where = error.filename or "a file in gpuctl's state folder"
        raise disk_error(where, error) from error


@contextmanager
def os_errors_as(kind: type[GpuctlError], problem: str, hint: str = "") -> Iterator[None]:
    """Raise an error of this kind instead of an OSError: the problem, with the system's reason."""
    try:
        yield
    except OSError as error:
        raise kind(f"{problem}: {error.strerror or error}", hint) from error


def is_access_error(error: OSError) -> bool:
    """Return whether the error says that this user may not read or write, or nobody may write."""
    return error.errno in _NO_ACCESS


def disk_error(path: Path | str, error: OSError) -> StateError:
    """Return the complaint about a file that cannot be written or read."""
    why = error.strerror or str(error)
    if not is_access_error(error):
        return unwritable(path, why)
    variable = _variable(Path(path))
    if error.errno != errno.EROFS:
        return _refused(Path(path), why, variable)
    other = f", or set {variable} to a folder that you can write" if variable else ""
    return StateError(f"{path} cannot be written: {why}", f"mount that file system writable{other}")


def _refused(path: Path, why: str, variable: str) -> StateError:
    """Return the complaint about a file that this user may not read or write.

    It names the nearest folder that exists, with its owner and mode, and the variable that chooses
    another one.
    """
    if os.access(path, os.F_OK) and not os.access(path, os.R_OK):
        verb, place = "read", path
    else:
        place = _nearest(path)
        verb = "written" if os.access(place, os.X_OK) else "read"
    able = "read" if verb == "read" else "write"
    other = f", or set {variable} to a folder that you can {able}" if variable else ""
    return StateError(
        f"{path} cannot be {verb}: {why} ({_mode(place)})",
        f"let {_user(os.geteuid())} {able} {place}{other}",
    )


def _nearest(path: Path) -> Path:
    """Return the path's nearest folder that this user can see."""
    for folder in path.parents:
        with suppress(OSError):  # the next folder is tried
            folder.stat()
            return folder
    return Path("/")


def _mode(path: Path) -> str:
    """Return who owns the file, and its mode."""
    try:
        status = path.stat()
    except OSError:
        return f"{path} cannot be seen"
    return f"{path} is {_user(status.st_uid)}'s, mode {stat.S_IMODE(status.st_mode):o}"


def _user(number: int) -> str:
    try:
        return pwd.getpwuid(number).pw_name
    except KeyError:  # a user without a name, as in containers
        return f"user {number}"


def _variable(path: Path) -> str:
    """Return the variable that chooses the folder in which the path is, or that is in the path."""
    bases = {
        "GPUCTL_STATE" if os.environ.get("GPUCTL_STATE") else "XDG_STATE_HOME": state_home(),
        "XDG_CACHE_HOME": cache_home(),
        "XDG_CONFIG_HOME": config_home(),
    }
    named = [name for name, base in bases.items() if base in (path, *path.parents)]
    named = named or [name for name, base in bases.items() if path in base.parents]
    if len(named) == 1:
        return named[0]
    return "HOME" if named or home() in path.parents else ""
