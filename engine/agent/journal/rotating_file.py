"""A growing file in pieces, so that a job that prints without end cannot fill a disk.

The first piece has the file's name and is always kept as it is. The next are
`NAME-<start>.EXT`, where `<start>` is the offset of their first byte in the whole, as 15 digits. A
complete piece is compressed (`….gz`) by a thread. If all pieces are larger than the budget, the
oldest ones after the first lose what `_remove_oldest` removes.
"""

from __future__ import annotations

import contextlib
import gzip
import os
import queue
import re
import shutil
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import IO, NamedTuple, cast

SIZE = 16 << 20
"""Bytes of a piece, before it is compressed."""
MOST = 1 << 30
"""The budget of one file in bytes on its disk, if that is not smaller than DISK_SHARE of them."""
DISK_SHARE = 40
_TEMPORARY = ".tmp"


class Piece(NamedTuple):
    """A piece: the offset of its first byte in the whole, and its file."""

    start: int
    path: Path


def pieces(path: Path) -> list[Piece]:
    """Return the pieces of the file in order; of two files of one piece the compressed one.

    A link is no piece: it could lead to a file that is not gpuctl's.
    """
    files = {0: path} if path.exists() and not path.is_symlink() else {}
    name = re.compile(rf"{re.escape(path.stem)}-(\d{{15}}){re.escape(path.suffix)}(\.gz)?")
    for other in sorted(path.parent.glob(f"{path.stem}-*")):  # compressed ones last
        match = name.fullmatch(other.name)
        if match and not other.is_symlink():
            files[int(match[1])] = other
    return [Piece(start, files[start]) for start in sorted(files)]


def open_piece(path: Path) -> IO[bytes]:
    """Open a piece to read its bytes."""
    return cast("IO[bytes]", gzip.open(path)) if path.suffix == ".gz" else path.open("rb")


def budget_on(folder: Path) -> int:
    """Return the budget of a file in this folder in bytes."""
    return min(MOST, shutil.disk_usage(folder).total // DISK_SHARE)


class PieceFile:
    """The writer of a file in pieces. `offset` is the number of bytes written so far."""

    def __init__(self, path: Path, budget: int, piece: int = SIZE) -> None:
        self.path = path
        self._budget, self._piece = budget, piece
        self._complete: queue.SimpleQueue[Path | None] = queue.SimpleQueue()
        self._packer: threading.Thread | None = None
        for left in path.parent.glob(f"{path.stem}-*{_TEMPORARY}"):  # of a writer that was killed
            left.unlink(missing_ok=True)
        *earlier, last = pieces(path) or [Piece(0, path)]
        self._size, self.offset = self._end_of(last) if last.path.exists() else (0, 0)
        self._grows = last.path if last.path.suffix != ".gz" else self._path_at(self.offset)
        if self._grows != last.path:
            self._size = 0
        self._file = _open_to_write(self._grows)
        for start, kept in earlier:
            if start and kept.suffix != ".gz":
                self._pack_later(kept)

    def append(self, data: bytes, end: int | None = None) -> None:
        """Append all the data or, with an OSError, nothing; `offset` is then `end`, if given."""
        if self._size >= self._piece:
            self._begin_piece()
        written = 0
        try:
            while written < len(data):  # a disk that becomes full accepts only a part
                written += os.pwrite(self._file, data[written:], self._size + written)
        except OSError:
            with contextlib.suppress(OSError):  # the first error is reported
                self.cut()
            raise
        self._size += written
        self.offset = self.offset + written if end is None else end

    def cut(self) -> None:
        """Remove an incomplete line, which a killed writer left, from the file's end."""
        os.ftruncate(self._file, self._size)

    def close(self) -> None:
        """Close the file, after its complete pieces are compressed."""
        self.finish()
        os.close(self._file)

    def finish(self) -> None:
        """Wait until the complete pieces are compressed; later ones stay as they are."""
        if self._packer is not None:
            self._complete.put(None)
            self._packer.join()

    def _begin_piece(self) -> None:
        path = self._path_at(self.offset)
        file = _open_to_write(path)
        os.close(self._file)
        if self._grows != self.path:
            self._pack_later(self._grows)
        self._file, self._grows, self._size = file, path, 0

    def _path_at(self, start: int) -> Path:
        return self.path.with_name(f"{self.path.stem}-{start:015}{self.path.suffix}")

    def _pack_later(self, path: Path) -> None:
        if self._packer is None:
            self._packer = threading.Thread(target=self._pack, name="pieces", daemon=True)
            self._packer.start()
        self._complete.put(path)

    def _pack(self) -> None:
        while (path := self._complete.get()) is not None:
            # A piece that cannot be compressed stays as it is: the disk may be full.
            with contextlib.suppress(OSError):
                self._compress(path)
            with contextlib.suppress(OSError):  # removed by another client of the same run
                while self._used() > self._budget and self._remove_oldest():
                    pass

    def _used(self) -> int:
        return sum(piece.path.stat().st_size for piece in pieces(self.path))

    def _compress(self, path: Path) -> None:
        with path.open("rb") as plain, self._replacement(path) as packed:
            shutil.copyfileobj(plain, packed, 1 << 20)
        path.unlink(missing_ok=True)

    @contextlib.contextmanager
    def _replacement(self, path: Path) -> Iterator[gzip.GzipFile]:
        """Yield a compressed file that takes the place of the piece when it is complete."""
        target = path if path.suffix == ".gz" else path.with_name(f"{path.name}.gz")
        temporary = target.with_name(f"{target.name}.{os.getpid()}{_TEMPORARY}")
        try:
            with (
                os.fdopen(_open_to_write(temporary), "wb") as file,
                # The level of least work: the job's processors do it.
                gzip.GzipFile("", "wb", 1, file, 0) as packed,
            ):
                yield packed
            temporary.replace(target)
        finally:
            temporary.unlink(missing_ok=True)

    def _end_of(self, piece: Piece) -> tuple[int, int]:
        """Return the size of the piece's file without an incomplete line, and its end's offset."""
        size = piece.path.stat().st_size
        return size, piece.start + size

    def _remove_oldest(self) -> bool:
        """Remove the oldest piece after the first; return whether that freed something."""
        middle = pieces(self.path)[1:-1]
        if middle:
            middle[0].path.unlink(missing_ok=True)
        return bool(middle)


def _open_to_write(path: Path) -> int:
    return os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW, 0o600)
