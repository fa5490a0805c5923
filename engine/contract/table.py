"""The tables of nccl-tests, as the head reads them from a run's output."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Optional

from config.bounds import Rank, Text, Whole
from engine.contract.plan import Case

MOST_ROWS = 100_000
"""The tables and rows of a run that are kept: a job may print what looks like them."""

CASE_MARK = "# gpuctl: case "
"""The beginning of the line before the table of a case: `# gpuctl: case 2 of 8: TITLE`."""


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
    wrong: Optional[Whole]
    error: Optional[float] = None
    iterations: tuple[float, ...] = ()


@dataclass(frozen=True)
class Row:
    """A row: `size` in bytes, `count` in elements; a half that was not printed is None.

    `redop` and `root` are None if the table has no such column; `at` is the time that `-S` adds.
    """

    size: Whole
    count: Whole
    dtype: Text
    redop: Optional[Text]
    root: Optional[Whole]
    out_of_place: Optional[Timing]
    in_place: Optional[Timing]
    at: Text = ""


@dataclass(frozen=True)
class TableRank:
    """A rank of a table: its host, and the PCI address of its device."""

    rank: Whole
    group: Whole
    pid: Whole
    host: Text
    device: Whole
    pci: Text
    name: Text


@dataclass(frozen=True)
class GateVerdict:
    """The verdict of a gate on a bandwidth of a table; `text` has both figures and the source."""

    passed: bool
    text: Text


@dataclass(frozen=True)
class Facts:
    """The facts of a table besides its rows; `rank` is that of the node that printed it.

    Unknown versions are empty, and unknown flags are missing in `flags` (min_bytes, max_bytes,
    step, factor, warmup, iterations, aggregated, checks, graph, unalign, threads, gpus).
    `case` is None for a table that no run of `type: nccl-tests` printed, `gates` are the verdicts
    of its gates. `out_of_bounds` and `average_busbw` are None without a footer. `ended_at` is the
    size at which an incomplete table ends, `lost` the number of rows that were printed but could
    not be read. `begun` is the time of the first line as ISO 8601 writes it in UTC.
    """

    rank: Rank
    collective: Text
    case: Optional[Case] = None
    gates: tuple[GateVerdict, ...] = ()
    nccl_tests: Text = ""
    nccl: Text = ""
    plugin: Text = ""
    driver: Text = ""
    flags: dict[str, Whole] = field(default_factory=dict)
    ranks: tuple[TableRank, ...] = ()
    is_checked: bool = True
    out_of_bounds: Optional[Whole] = None
    average_busbw: Optional[float] = None
    ended_at: Optional[Whole] = None
    lost: Whole = 0
    from_json: bool = False
    begun: Optional[Text] = None
