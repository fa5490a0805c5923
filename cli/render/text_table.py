"""Tables of text that fit the terminal."""

import math
from collections.abc import Iterable, Sequence
from io import StringIO

from rich.cells import cell_len
from rich.console import Console
from rich.table import Table
from rich.text import Text

from cli.terminal import shown

_GAP = 2
_SENTENCE = 40
_BAR = 6
_EIGHTHS = " ▏▎▍▌▋▊▉"


def table_lines(
    head: Sequence[str],
    rows: Iterable[Sequence[str]],
    width: int | None = None,
    right: Sequence[str] = (),
    drop: Sequence[str] = (),
    sentences: str = "",
) -> list[str]:
    """Return the lines of a table, none wider than `width`.

    A table that is too wide loses the columns named by `drop`, in this order, as far as needed.
    Then cells are wrapped; nothing is cut off. The column named by `sentences` is wrapped first,
    as long as it keeps 40 cells. Without a width every row is one line. The columns named by
    `right` are aligned to the right.
    """
    table = [[shown(cell, is_plain=True) for cell in row] for row in rows]
    for name in drop:
        if width is None or _least_width(head, table, sentences) <= width:
            break
        kept = [at for at, column in enumerate(head) if column != name]
        head, table = [head[at] for at in kept], [[row[at] for at in kept] for row in table]
    return _drawn(head, table, width, right)


def _least_width(head: Sequence[str], rows: list[list[str]], sentences: str) -> int:
    """Return the width of the table in which only the column `sentences` is wrapped."""
    widths = [
        max(cell_len(line) for cell in column for line in cell.split("\n"))
        for column in zip(head, *rows, strict=True)
    ]
    wrapped = (
        min(width, _SENTENCE) if name == sentences else width
        for name, width in zip(head, widths, strict=True)
    )
    return sum(wrapped) + _GAP * (len(head) - 1)


def _drawn(
    head: Sequence[str], rows: Iterable[Sequence[str]], width: int | None, right: Sequence[str]
) -> list[str]:
    drawn = Table(box=None, pad_edge=False, padding=(0, _GAP, 0, 0), header_style="")
    for name in head:
        drawn.add_column(Text(name), justify="right" if name in right else "left", overflow="fold")
    for row in rows:
        drawn.add_row(*(Text(cell) for cell in row))
    text = StringIO()
    console = Console(file=text, width=width or 10_000, color_system=None)
    console.print(drawn)
    return [line.rstrip() for line in text.getvalue().splitlines()]


def bar(part: float | None) -> str:
    """Return a part of 1 as a small bar with its percentage: `███    50 %`; `-` if unknown."""
    if part is None:
        return "-"
    eighths = math.ceil(min(1.0, max(0.0, part)) * _BAR * 8)
    full, rest = divmod(eighths, 8)
    drawn = "█" * full + (_EIGHTHS[rest] if rest else "")
    return f"{drawn:<{_BAR}} {part * 100:3.0f} %"
