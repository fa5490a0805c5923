"""The files of a journal: JSON lines that are appended, on the head and in the client's copy.

A reader's position is a byte offset, so that a client can read on after a pause. Lines are ASCII,
so bytes and characters are the same count. Where the journal is larger than its budget, the oldest
output is removed, but no other event.

The files are a PieceFile. An offset is a position in the journal as it was written. Where output
was removed to stay within the budget, one line `output_dropped` takes its place. It has the offsets
at which the removed part began and ended, so every other line keeps its offset.

Each process of the agent imports this module, and most do without the classes of the events.
"""

from __future__ import annotations

import json
import math
import os
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import IO, Any

from engine.agent.journal.rotating_file import Piece, PieceFile, open_piece, pieces

JOURNAL = "journal.jsonl"
LONGEST = 32 << 20
"""The most bytes of a line: the client's copy comes from a machine on which a job was root."""
DROPPED = "output_dropped"
_DROPPED = DROPPED.encode()
Message = dict[str, Any]


def kind_of(line: bytes, *kinds: str) -> str:
    """Return the kind of the line's event if it is one of these; empty for any other line.

    Only lines that have the word somewhere are parsed: a journal may have gigabytes.
    """
    if not any(kind.encode() in line for kind in kinds):
        return ""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return ""
    kind = event.get("kind") if isinstance(event, dict) else None
    return kind if isinstance(kind, str) and kind in kinds else ""


def end_of_line(start: int, line: bytes) -> int:
    """Return the offset after the line, which begins at `start`."""
    gap = _gap(line)
    return start + len(line) if gap is None else int(gap["end"])


class JournalFile(PieceFile):
    """The writer of a journal. What the budget removes is output; other events stay."""

    _is_thinned = False

    def append_line(self, line: bytes) -> None:
        """Append the line, with its end, or raise OSError."""
        self.append(line, end_of_line(self.offset, line))

    def _end_of(self, piece: Piece) -> tuple[int, int]:
        size, offset = 0, piece.start
        with open_piece(piece.path) as file:
            for line in file:
                if line.endswith(b"\n"):
                    size, offset = size + len(line), end_of_line(offset, line)
        return size, offset

    def _remove_oldest(self) -> bool:
        """Remove the output of the oldest piece, and join the rest with what earlier calls left."""
        needed = 2 if self._is_thinned else 1
        oldest = pieces(self.path)[1:-1][:needed]
        if len(oldest) < needed:
            return False
        self._is_thinned = True
        with self._replacement(oldest[0].path) as file:
            file.writelines(_without_output(_lines_of(oldest)))
        for piece in oldest:
            if piece != oldest[0] or piece.path.suffix != ".gz":
                piece.path.unlink(missing_ok=True)
        return True


class JournalReader:
    """A reader of a journal that may grow; `offset` is the position of the next line."""

    def __init__(self, path: Path, offset: int = 0) -> None:
        self._path, self.offset = path, offset
        self._file: IO[bytes] | None = None
        self._start = 0
        """The offset at which the open piece starts."""
        self._at = 0
        """The offset at which `_file` is."""

    def read(self) -> Iterator[bytes]:
        """Yield the whole lines from `offset` to the present end, and advance `offset`."""
        if self._file is None and not self._open_next():
            return
        while True:
            # Listed before the piece is read: a piece with a successor is complete.
            is_last = all(piece.start <= self._start for piece in pieces(self._path))
            yield from self._read_piece()
            if is_last or not self._open_next():
                return

    def close(self) -> None:
        """Close the piece that is open."""
        if self._file is not None:
            self._file.close()

    def _open_next(self) -> bool:
        """Open the piece with `offset`; if that is missing, the next one. Return if there is one.

        It may be the open piece in another file, which pieces after it have joined.
        """
        while parts := pieces(self._path):
            behind = [piece for piece in parts if piece.start > self.offset]
            piece = parts[-len(behind) - 1] if len(behind) < len(parts) else parts[0]
            try:
                file = open_piece(piece.path)
                if self._file is not None and _is_same(file, self._file):
                    file.close()
                    if not behind:
                        return False
                    piece = behind[0]
                    file = open_piece(piece.path)
            except FileNotFoundError:  # compressed meanwhile, or joined with the piece before
                continue
            self.close()
            self._file, self._start, self._at = file, piece.start, piece.start
            return True
        return False

    def _read_piece(self) -> Iterator[bytes]:
        assert self._file is not None
        while line := self._file.readline(LONGEST):
            if not line.endswith(b"\n"):
                if len(line) >= LONGEST:
                    raise ValueError(f"it has a line of more than {LONGEST >> 20} MiB")
                self._file.seek(-len(line), os.SEEK_CUR)
                return
            start, self._at = self._at, end_of_line(self._at, line)
            if self._at <= self.offset:
                continue
            if start < self.offset:
                line = _rest_of_gap(line, self.offset)
            self.offset = self._at
            yield line


def _is_same(file: IO[bytes], other: IO[bytes]) -> bool:
    return os.path.sameopenfile(file.fileno(), other.fileno())


def _lines_of(parts: list[Piece]) -> Iterator[tuple[int, bytes]]:
    """Yield the pieces' lines with their offsets, each once.

    A piece may have joined the one before it and still exist, if the writer was killed then.
    """
    reached = 0
    for piece in parts:
        offset = piece.start
        with open_piece(piece.path) as file:
            for line in file:
                start, offset = offset, end_of_line(offset, line)
                if start >= reached:
                    reached = offset
                    yield start, line


def _gap(line: bytes) -> Message | None:
    """Return the `output_dropped` of the line; None for any other line, also a malformed one."""
    gap = _event(line, DROPPED, "time", "start", "end") if _DROPPED in line else None
    if gap is None or not 0 <= gap["start"] < gap["end"] or not isinstance(gap.get("ranks"), list):
        return None
    ranks = all(_has(rank, "rank", "size", "since", "until") for rank in gap["ranks"])
    return gap if ranks else None


def _event(line: bytes, kind: str, *numbers: str) -> Message | None:
    """Return the line's event if it is of this kind and has these numbers."""
    try:
        event = json.loads(line)
    except (ValueError, RecursionError):
        return None
    return event if _has(event, *numbers) and event.get("kind") == kind else None


def _has(event: Any, *numbers: str) -> bool:
    return isinstance(event, dict) and all(_is_number(event.get(name)) for name in numbers)


def _is_number(value: Any) -> bool:
    try:
        return isinstance(value, (int, float)) and math.isfinite(value)
    except OverflowError:  # a whole number of more than 308 digits
        return False


def _without_output(lines: Iterable[tuple[int, bytes]]) -> Iterator[bytes]:
    """Yield the lines; one `output_dropped` takes the place of neighbouring lines of output."""
    gap: Message | None = None
    ranks: dict[int, Message] = {}
    for start, line in lines:
        dropped = _gap(line)
        output = _event(line, "output", "time", "rank")
        if dropped is None and (output is None or not isinstance(output.get("text"), str)):
            if gap is not None:
                yield _line({**gap, "ranks": list(ranks.values())})
                gap = None
            yield line
            continue
        if gap is None:
            gap, ranks = {"kind": DROPPED, "start": start}, {}
        event = dropped or output or {}
        gap["time"], gap["end"] = event["time"], end_of_line(start, line)
        for more in (_dropped(output),) if dropped is None and output else event["ranks"]:
            first = ranks.setdefault(more["rank"], more)
            if first is not more:
                first["size"] += more["size"]
                first["until"], first["sequence"] = more["until"], more.get("sequence", 0)
    if gap is not None:
        yield _line({**gap, "ranks": list(ranks.values())})


def _dropped(event: Message) -> Message:
    size = len(event["text"].encode("utf-8", "replace")) + bool(event.get("ends_line", True))
    at = event["time"]
    last = event.get("sequence", 0)
    return {"rank": event["rank"], "size": size, "since": at, "until": at, "sequence": last}


def _rest_of_gap(line: bytes, offset: int) -> bytes:
    """Return the part of an `output_dropped` from `offset` on, for a reader who has the beginning.

    Its sizes and times are shares of the whole: what was removed cannot be counted any more.
    """
    gap = _gap(line)
    if gap is None or not gap["start"] < offset < gap["end"]:
        return line
    share = (gap["end"] - offset) / (gap["end"] - gap["start"])
    gap["start"] = offset
    for rank in gap["ranks"]:
        rank["size"] = round(rank["size"] * share)
        rank["since"] = round(rank["until"] - (rank["until"] - rank["since"]) * share, 3)
    return _line(gap)


def _line(event: Message) -> bytes:
    return json.dumps(event).encode() + b"\n"
