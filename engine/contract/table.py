"""The rows and ranks of nccl-tests' tables, as the head and clients read them from output."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Optional


@dataclass(frozen=True)
class Timing:
    """One half of a row: time in microseconds, bandwidths in GB/s.

    `wrong` is the number of wrong values; None if they were not checked or not counted: older
    versions print the largest difference instead (`error`). `iterations` is what `-I 1` adds
    (shortest, longest, 99th percentile in microseconds, spread in percent).
    """

    time_us: float
    algbw: float
    busbw: float
    wrong: Optional[int]
    error: Optional[float] = None
    iterations: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row: `size` in bytes, `count` in elements; a half that was not printed is None.

    `redop` and `root` are None if the table has no such column; `at` is the time that `-S` adds.
    """

    size: int
    count: int
    dtype: str
    redop: Optional[str]
    root: Optional[int]
    out_of_place: Optional[Timing]
    in_place: Optional[Timing]
    at: str = ""


@dataclass(frozen=True)
class TableRank:
    """A rank of a table: its host, and the PCI address of its device."""

    rank: int
    group: int
    pid: int
    host: str
    device: int
    pci: str
    name: str
