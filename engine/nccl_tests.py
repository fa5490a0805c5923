"""Rows of nccl-tests' tables, read from a job's output as it passes.

Tolerant, because the format changed four times (nccl-tests' history, 2021 to 2.19, read
2026-11-20): redop and root come and go, `error` was a largest difference before it became `#wrong`,
a count; -S appends a time, -I four columns to each half, mpirun and srun put tags in front.
"""

import re

from config.models import Value
from engine.events import Event, Output
from engine.lines import WholeLines

_TAG = re.compile(r"^\s*(?:\[\d+,\d+\]<std(?:out|err)>:|\d+:)\s?")
_TYPE = re.compile(r"u?int(?:8|32|64)|half|float|double|bfloat16|fp?8_?e\dm\d")
_WORD = re.compile(r"[a-z]+")
_INTEGER = re.compile(r"-?\d+")
_DATE = re.compile(r"\d{4}-\d{2}-\d{2}")
_TIME = re.compile(r"\d{2}:\d{2}:\d{2}")


class Timing(Value):
    """One half of a row: time in microseconds, bandwidths in GB/s.

    `wrong` is how many values were wrong; None where they were not checked, or not counted.
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: int | None


class Row(Timing):
    """A row: its own timing is out-of-place. `size` in bytes, `count` in elements.

    `redop` and `root` are None where the table has no such column. `rank` is the node's that
    printed it.
    """

    rank: int
    size: int
    count: int
    dtype: str
    redop: str | None
    root: int | None
    in_place: Timing


class TableParser:
    """Finds rows in a run's events; `rows` has all so far, as they came."""

    def __init__(self) -> None:
        self.rows: list[Row] = []
        self._lines = WholeLines()
        self._differences: set[int] = set()

    def feed(self, event: Event) -> tuple[Row, ...]:
        """The rows that `event` completes."""
        if not isinstance(event, Output):
            return ()
        found = []
        for line in self._lines.feed(event):
            text = _TAG.sub("", line.text)
            if text.lstrip().startswith("#"):
                self._note_header(line.rank, text)
            elif (
                row := parse_row(text, line.rank, line.rank not in self._differences)
            ) is not None:
                found.append(row)
        self.rows.extend(found)
        return tuple(found)

    def _note_header(self, rank: int, text: str) -> None:
        columns = text.replace("#wrong", " #wrong").split()
        if "busbw" in columns:
            if "error" in columns:
                self._differences.add(rank)
            else:
                self._differences.discard(rank)


def parse_row(text: str, rank: int, counts_wrong: bool) -> Row | None:
    """The row that `text` is, or None. `counts_wrong`: its table has `#wrong`, not `error`."""
    tokens = text.split()
    if len(tokens) < 7 or not _TYPE.fullmatch(tokens[2]):
        return None
    if not (tokens[0].isdecimal() and tokens[1].isdecimal()):
        return None
    rest = tokens[3:]
    if len(rest) > 2 and _DATE.fullmatch(rest[-2]) and _TIME.fullmatch(rest[-1]):
        rest = rest[:-2]
    redop = rest.pop(0) if _WORD.fullmatch(rest[0]) else None
    # Columns of timings come in fours; what is left over is the root.
    root = None
    if len(rest) % 4 == 1 and _INTEGER.fullmatch(rest[0]):
        root = int(rest.pop(0))
    halves = _halves(rest, counts_wrong)
    if halves is None:
        return None
    return Row(
        **halves[0].model_dump(),
        rank=rank,
        size=int(tokens[0]),
        count=int(tokens[1]),
        dtype=tokens[2],
        redop=redop,
        root=root,
        in_place=halves[1],
    )


def _halves(columns: list[str], counts_wrong: bool) -> tuple[Timing, Timing] | None:
    """Out-of-place and in-place; None when the columns are something else."""
    if len(columns) not in (8, 16):
        return None
    middle = len(columns) // 2
    try:
        return _timing(columns[:middle], counts_wrong), _timing(columns[middle:], counts_wrong)
    except (ValueError, OverflowError):
        return None


def _timing(columns: list[str], counts_wrong: bool) -> Timing:
    time_us, algbw, busbw = (float(text) for text in columns[:3])
    wrong = _wrong(columns[3], counts_wrong)
    return Timing(time_us=time_us, algbw=algbw, busbw=busbw, wrong=wrong)


def _wrong(text: str, counts_wrong: bool) -> int | None:
    """A count may be printed as 1.2e+07; ValueError for what is neither a number nor N/A."""
    if text == "N/A":
        return None
    value = float(text)
    return int(value) if counts_wrong else None
