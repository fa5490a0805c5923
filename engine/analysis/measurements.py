"""The measurements in a run's tables: figures of every size, over the repeats of the same test."""

from collections.abc import Iterable, Mapping
from statistics import median
from typing import Literal

from config.models import Value
from config.quantities import counted
from engine.contract.table import Facts, Row, Timing
from engine.record.nccl_tests import Table

Half = Literal["out-of-place", "in-place"]
HALVES: tuple[Half, ...] = ("out-of-place", "in-place")


class Series(Value):
    """One test over all its sizes; two tables with the same series are repeats of each other.

    `node` is the rank of the node that printed it. `hosts` are those on which it ran, numbered in
    the order in which the run's tables first name them: hosts have other names in another cluster.
    `ranks` is 0 and `hosts` is empty if they are not known. `variables` are those of its case
    (`NCCL_ALGO=Ring`).
    """

    collective: str
    node: int
    ranks: int
    hosts: tuple[int, ...]
    dtype: str
    redop: str
    root: int | None
    aggregated: int
    graph: int
    variables: tuple[str, ...]

    @property
    def title(self) -> str:
        """The test and its number of ranks: `all_reduce float sum, 16 ranks on 2 hosts`."""
        words = [self.collective, self.dtype, self.redop]
        words += [f"root {self.root}"] if self.root not in (None, -1) else []
        words += [f"graph {self.graph}"] if self.graph else []
        words += [f"aggregated {self.aggregated}"] if self.aggregated > 1 else []
        words += self.variables
        if not self.ranks:
            return " ".join(filter(None, words))
        count = len(self.hosts)
        hosts = counted(count, "host")
        if self.hosts != tuple(range(count)):
            hosts = f"{'host' if count == 1 else 'hosts'} {', '.join(map(str, self.hosts))}"
        return f"{' '.join(filter(None, words))}, {counted(self.ranks, 'rank')} on {hosts}"


class Figures(Value):
    """The figures of one size and half: medians over `repeats`, and the extremes of the time.

    Times are in microseconds, bandwidths in GB/s. `wrong` is None if no repeat counted values.
    """

    repeats: int
    time_us: float
    fastest_us: float
    slowest_us: float
    algbw: float
    busbw: float
    wrong: int | None

    @property
    def spread(self) -> float:
        """Slowest minus fastest time, as a part of the median."""
        return (self.slowest_us - self.fastest_us) / self.time_us


Measurements = Mapping[Series, Mapping[tuple[int, Half], Figures]]
"""Figures by series, and in it by size and half; in the order in which they were printed."""


def measurements(tables: Iterable[Table]) -> Measurements:
    """Return the measurements in the tables; halves without a time have none.

    Rows of 0 bytes are left out: collectives that round small sizes down print several of them.
    """
    timings: dict[Series, dict[tuple[int, Half], list[Timing]]] = {}
    numbers: dict[str, int] = {}
    for table in tables:
        of_hosts = {numbers.setdefault(rank.host, len(numbers)) for rank in table.facts.ranks}
        hosts = tuple(sorted(of_hosts))
        for row in filter(lambda row: row.size, table.rows):
            of_series = timings.setdefault(_series(table.facts, hosts, row), {})
            for half, timing in zip(HALVES, (row.out_of_place, row.in_place), strict=True):
                if timing is not None and timing.time_us > 0:
                    of_series.setdefault((row.size, half), []).append(timing)
    return {
        series: {point: _figures(repeats) for point, repeats in of_series.items()}
        for series, of_series in timings.items()
    }


def _series(facts: Facts, hosts: tuple[int, ...], row: Row) -> Series:
    variables = facts.case.variables if facts.case else {}
    return Series(
        collective=facts.collective,
        node=facts.rank,
        ranks=len(facts.ranks),
        hosts=hosts,
        dtype=row.dtype,
        redop="" if row.redop in (None, "none") else str(row.redop),
        root=row.root,
        aggregated=facts.flags.get("aggregated", 1),
        graph=facts.flags.get("graph", 0),
        variables=tuple(f"{name}={value}" for name, value in variables.items()),
    )


def _figures(repeats: list[Timing]) -> Figures:
    times = [repeat.time_us for repeat in repeats]
    counted = [repeat.wrong for repeat in repeats if repeat.wrong is not None]
    return Figures(
        repeats=len(repeats),
        time_us=median(times),
        fastest_us=min(times),
        slowest_us=max(times),
        algbw=median(repeat.algbw for repeat in repeats),
        busbw=median(repeat.busbw for repeat in repeats),
        wrong=max(counted, default=None),
    )
