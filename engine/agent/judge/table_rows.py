"""A row of nccl-tests' tables, also after a launcher's prefix and torn by other output.

A row comes in parts if NCCL prints in the middle of it (NCCL connects while the first size runs).
The size of a row must be that of its elements, for one rank or for all ranks; otherwise its first
digits are lost, and the line is not a row.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from engine.contract.table import Row, Timing

_COLOUR = re.compile(r"\x1b\[[0-9;]*m")
_WIDTHS = {
    **{"int8": 1, "uint8": 1, "f8e4m3": 1, "f8e5m2": 1, "fp8_e4m3": 1, "fp8_e5m2": 1},
    **{"half": 2, "bfloat16": 2, "int32": 4, "uint32": 4, "float": 4},
    **{"int64": 8, "uint64": 8, "double": 8},
}
_TYPE = "|".join(_WIDTHS)
_HEAD = re.compile(rf"(?<![\w.+-])(\d{{1,18}})[ \t]+(\d{{1,18}})[ \t]+({_TYPE})(?=\s|$)")
_REDOP = re.compile(r"[a-z]+")
_INTEGER = re.compile(r"-?\d{1,18}")
_FIRST_EXPONENT = 1_000_000
_MOST_WRONG = 1 << 62
_STAMP = re.compile(r"\s+(\d{4}-\d{2}-\d{2} \d{2}:\d{2}:\d{2})\s*$")
_ALONE = re.compile(r"\s*(?:[a-z]+)?\s*(?:-?\d+)? {30,}\S")  # no out-of-place columns
_COLUMN = r"(?:N/A|[-+]?\d[\d.]*(?:e[-+]?\d+)?)(?![\d:/\[\]()=<>-])"
_BEGUN = re.compile(
    rf"\s*(\d{{1,18}})[ \t]+(?:\d+)[ \t]+(?:{_TYPE})(?:[ \t]+[a-z]+(?=[ \t]))?"
    rf"(?:[ \t]+{_COLUMN})*[ \t]*"
)
_MORE = re.compile(rf"[ \t]*(?:{_COLUMN}[ \t]+)*(?:{_COLUMN}[ \t]*)?")

_PREFIXES = tuple(
    re.compile(rf"\s*(?:{form})")
    for form in (
        # Open MPI's --tag-output and --timestamp-output, PRRTE's with its namespace or host and pid
        r"(?:\w{3} \w{3} [ \d]\d \d{2}:\d{2}:\d{2}(?:\.\d+)? \d{4}:? ?)?"
        r"(?:\[[\w.@-]*,?\d+\](?:\[[^\]\s]*\])?)?<std(?:out|err)>:? ?",
        r"\d{4}-\d{2}-\d{2}[T ]\d{2}:\d{2}:\d{2}[.,\d]*(?:Z|[+-]\d{2}:?\d{2})?[:,|]* ",
        r"\[\w+\d\]: ?",  # torchrun --tee: [default0]:
        r"\(\w*[^()]*pid=\d+[^()]*\) ?",  # Ray: (task pid=4100, ip=10.0.0.6)
        r"\[\d+\] ",  # Hydra: mpiexec -l
        r" *\d+: ?",  # srun -l
        r"[A-Za-z0-9][\w.-]*: (?=\s|#|\d)",  # pdsh, of DeepSpeed
    )
)  # sources: docs/look-up/nccl-tables.md


@dataclass(frozen=True)
class Shape:
    """The columns of a table according to its header: `#wrong` or `error`, and those of `-I 1`.

    `counts_wrong` is None without a header.
    """

    counts_wrong: bool | None = None
    per_iteration: bool = False


@dataclass
class Fragment:
    """The beginning of a torn row; its rest comes after other output. `size` is known."""

    size: int
    text: str

    def add(self, text: str, shape: Shape) -> Row | None:
        """Return the row if `text` completes it, else None; ignore other output."""
        more = _MORE.match(text)
        if more is None or not more[0].strip():
            return None
        self.text += more[0]
        return parse_row(self.text, shape)


def strip_prefix(text: str) -> str:
    """Return the line without colours and without the prefix of a launcher."""
    text = _COLOUR.sub("", text) if "\x1b" in text else text
    for _ in range(3):
        for prefix in _PREFIXES:
            match = prefix.match(text)
            if match and match.end() < len(text):
                text = text[match.end() :]
                break
        else:
            break
    return text


def parse_row(text: str, shape: Shape = Shape()) -> Row | None:
    """Return the row at the end of `text`, or None."""
    for head in _HEAD.finditer(text):
        row = _row(head, text[head.end() :], shape)
        if row is not None:
            return row
    return None


def parse_fragment(text: str) -> Fragment | None:
    """Return the fragment if `text` is a row that is torn after its type, else None."""
    begun = _BEGUN.match(text)
    return Fragment(int(begun[1]), begun[0]) if begun else None


def _row(head: re.Match[str], rest: str, shape: Shape) -> Row | None:
    stamp = _STAMP.search(rest)
    if stamp:
        rest = rest[: stamp.start()]
    columns = rest.split()
    if not columns:
        return None
    redop = columns.pop(0) if _REDOP.fullmatch(columns[0]) else None
    # Columns of timings come in fours; a remaining column is the root.
    root = None
    if len(columns) % 4 == 1 and _INTEGER.fullmatch(columns[0]):
        root = int(columns.pop(0))
    size, count, dtype = int(head[1]), int(head[2]), head[3]
    if not _is_consistent(size, count, dtype):
        return None
    try:
        halves = _halves(columns, shape, _ALONE.match(rest) is not None)
    except (ValueError, OverflowError):
        return None
    if halves is None:
        return None
    return Row(size, count, dtype, redop, root, *halves, at=stamp[1] if stamp else "")


def _is_consistent(size: int, count: int, dtype: str) -> bool:
    """Return whether `size` is that of `count` elements, for one rank or for all ranks.

    A count may be 0: for parts smaller than 16 bytes, and for alltoallv's pattern in a file.
    """
    own = count * _WIDTHS[dtype]
    return own == 0 or (size >= own and size % own == 0)


def _halves(
    columns: list[str], shape: Shape, is_alone: bool
) -> tuple[Timing | None, Timing | None] | None:
    """Return out-of-place and in-place; a single half is in-place (2.17.3 and later)."""
    width = 8 if shape.per_iteration or len(columns) == 16 else 4
    if is_alone and len(columns) == width:
        return None, _half(columns, shape)
    if len(columns) != 2 * width:
        return None
    return _half(columns[:width], shape), _half(columns[width:], shape)


def _is_error(text: str) -> bool:
    """Return whether a column without a header is a largest difference, and no count.

    nccl-tests up to 2.11 prints differences as `%5.0le` (1e+00). Later versions print counts as
    `%g`, which has an exponent from a million on (src/common.cu, 2026-11-22).
    """
    value = float(text)
    return value != int(value) or ("e" in text and value < _FIRST_EXPONENT)


def _half(columns: list[str], shape: Shape) -> Timing:
    time_us, algbw, busbw = (float(text) for text in columns[:3])
    if time_us < 0:  # a root, in a row whose last column is torn off
        raise ValueError(columns[0])
    iterations = tuple(float(text) for text in columns[4:])
    if columns[3] == "N/A":
        return Timing(time_us, algbw, busbw, None, iterations=iterations)
    value = float(columns[3])
    if shape.counts_wrong is False or (shape.counts_wrong is None and _is_error(columns[3])):
        return Timing(time_us, algbw, busbw, None, value, iterations)
    if value != int(value) or not 0 <= value <= _MOST_WRONG:
        raise ValueError(columns[3])
    return Timing(time_us, algbw, busbw, int(value), iterations=iterations)
