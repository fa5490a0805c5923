"""Files that arrive from a node. A job is root there, so nothing that is sent is believed.

Everything arrives below one folder of this machine, which the client names. No file is written
through a link: links are made last, and only those that stay in the folder whatever the others are.
"""

import os
import re
import stat
import tarfile
from contextlib import suppress
from pathlib import Path, PurePosixPath
from typing import IO, Any, Protocol, cast

from config.errors import NodeError

MOST_HEADERS = 1 << 20
"""Bytes between the files of an archive. A hostile one could fill the memory with names."""
_PIECE = 1 << 18
_SHOWN = 3


class Readable(Protocol):
    """A source of bytes."""

    def read(self, size: int, /) -> bytes:
        """Return at most `size` bytes; none at the end."""


class Arrivals:
    """The folder or file `top` of this machine, which does not exist yet, while it arrives.

    Files get the bits of `most_mode` at most, and are writable for their owner. `refused` has a
    reason for each thing that was left out.
    """

    def __init__(self, top: Path, most_mode: int = 0o777) -> None:
        self._top, self._most_mode = top, most_mode
        self._links: list[tuple[PurePosixPath, str]] = []
        self.refused: list[str] = []

    def add_folder(self, path: PurePosixPath) -> None:
        """Make the folder and those above it."""
        (self._top / path).mkdir(parents=True, exist_ok=True)

    def create_file(self, path: PurePosixPath, mode: int) -> IO[bytes]:
        """Return a new file, open for writing. Raises FileExistsError if something is there."""
        place = self._top / path
        place.parent.mkdir(parents=True, exist_ok=True)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW
        return os.fdopen(os.open(place, flags, mode & self._most_mode | 0o600), "wb")

    def add_link(self, path: PurePosixPath, target: str) -> None:
        """Note the link for `finish`, or refuse it."""
        if leads_out(path, target):
            self.refuse(str(path), f"a link to {shown(target)}, which is outside")
        else:
            self._links.append((path, target))

    def add_hard_link(self, path: PurePosixPath, other: PurePosixPath) -> None:
        """Make a hard link to a file that has arrived, or refuse it."""
        first, place = self._top / other, self._top / path
        if not first.is_file():
            self.refuse(str(path), "a link to a file that was not sent")
            return
        place.parent.mkdir(parents=True, exist_ok=True)
        os.link(first, place, follow_symlinks=False)

    def refuse(self, name: str, reason: str) -> None:
        """Note that something is left out, and why."""
        self.refused.append(f"{shown(name)} ({reason})")

    def finish(self) -> None:
        """Make the links, except those below another link: their targets could lead out."""
        for path, target in self._links:
            place = self._top / path
            if any((self._top / parent).is_symlink() for parent in path.parents):
                self.refuse(str(path), "its folder is a link")
                continue
            place.parent.mkdir(parents=True, exist_ok=True)
            place.symlink_to(target)


def leads_out(path: PurePosixPath, target: str) -> bool:
    """Return whether a link at `path` could lead out of the folder, whatever the other links are.

    A `..` after a name counts as leading out: that name may be a link.
    """
    parts = PurePosixPath(target).parts
    ups = next((index for index, part in enumerate(parts) if part != ".."), len(parts))
    return target.startswith("/") or ".." in parts[ups:] or ups > len(path.parts) - 1


def shown(name: str) -> str:
    """Return a name that a node sent as a message has it: in one line, and not too long."""
    text = name if len(name) <= 100 else f"{name[:97]}..."
    return text if re.fullmatch(r"[\w./@%+=:,~-]+", text) else repr(text)


def refusal(node: str, refused: list[str]) -> NodeError:
    """Return the error for a copy without the things that were refused."""
    more = f" and {len(refused) - _SHOWN} more" if refused[_SHOWN:] else ""
    return NodeError(
        f"{node}: not copied: {', '.join(refused[:_SHOWN])}{more}", "everything else was copied"
    )


def unpack(stream: Readable, arrivals: Arrivals, node: str) -> bool:
    """Read a tar archive with one file or folder, whatever its name; return False if it is empty.

    This is what `filter="data"` of tarfile does (PEP 706), which Python 3.11.2 of Debian 12 lacks,
    and more: what that would change is refused, and the headers are bounded. Raises NodeError for
    what is no archive, and for paths that lead out.
    """
    bounded = _BoundedStream(stream)
    try:
        source = cast("IO[bytes]", bounded)  # it only reads
        with tarfile.open(fileobj=source, mode="r|", bufsize=_PIECE, encoding="utf-8") as archive:
            top = ""
            while (entry := archive.next()) is not None:
                path = _path(entry.name, node)
                top = top or path.parts[0]
                if path.parts[0] != top:
                    raise NodeError(f"{node} sent {shown(entry.name)}, which was not asked for", "")
                bounded.allow(entry.size)
                _add(archive, entry, path.relative_to(top), arrivals, node)
                cast("Any", archive).members.clear()  # else it keeps all of them
            arrivals.finish()
    except (tarfile.TarError, ValueError, OverflowError, RecursionError) as error:
        if bounded.is_empty:
            return False
        raise NodeError(f"{node} sent no archive that can be read: {error}", "") from error
    return True


def _path(name: str, node: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not path.parts or path.is_absolute() or ".." in path.parts:
        raise NodeError(f"{node} sent {shown(name)}, which was not asked for", "")
    return path


def _add(
    archive: tarfile.TarFile,
    entry: tarfile.TarInfo,
    path: PurePosixPath,
    arrivals: Arrivals,
    node: str,
) -> None:
    name = str(path) if path.parts else entry.name
    if entry.isdir():
        arrivals.add_folder(path)
    elif entry.issym():
        arrivals.add_link(path, entry.linkname)
    elif entry.islnk():
        other = _path(entry.linkname, node)
        arrivals.add_hard_link(path, PurePosixPath(*other.parts[1:]))
    elif not entry.isreg() or entry.sparse is not None:
        arrivals.refuse(name, "neither a file nor a folder")
    elif entry.mode & (stat.S_ISUID | stat.S_ISGID):
        arrivals.refuse(name, "its set-uid or set-gid bit is set")
    else:
        _add_file(archive, entry, path, arrivals)


def _add_file(
    archive: tarfile.TarFile, entry: tarfile.TarInfo, path: PurePosixPath, arrivals: Arrivals
) -> None:
    content = archive.extractfile(entry)
    assert content is not None
    with arrivals.create_file(path, entry.mode) as file:
        while data := content.read(_PIECE):
            file.write(data)
        file.flush()
        with suppress(OSError, OverflowError):  # a time that no file system has
            os.utime(file.fileno(), (entry.mtime, entry.mtime))


class _BoundedStream:
    """The stream, from which at most MOST_HEADERS bytes more are read than files have."""

    def __init__(self, stream: Readable) -> None:
        self._stream = stream
        self._left = MOST_HEADERS
        self.is_empty = True

    def allow(self, size: int) -> None:
        """Allow the bytes of a file, and the headers of the next."""
        self._left = max(self._left, MOST_HEADERS) + size

    def read(self, size: int) -> bytes:
        """Return at most `size` bytes."""
        data = self._stream.read(size)
        self._left -= len(data)
        self.is_empty = self.is_empty and not data
        if self._left < 0:
            raise tarfile.ReadError("its headers are too large")
        return data
