"""The comparison of two runs: which measurements changed by more than their noise.

A measurement is a figure of one size in a run's tables, over the repeats of the same test.
"""

from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from config.models import Value
from config.quantities import counted
from engine.contract.table import Facts, Row, Timing
from engine.record.result import Table

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


UNKNOWN_NOISE = 0.10
"""The noise of a run without repeats.

nccl-tests itself accepts an average bus bandwidth that is up to 10 % below the one asked for
(`check_avg_bw*(0.9)` in src/common.cu of 2.19.6, https://github.com/NVIDIA/nccl-tests,
2026-11-22).
"""
LEAST_NOISE = 0.01
"""Two repeats may agree by chance: a smaller change than this is never marked."""


class MeasurementChange(Value):
    """The change of one measurement.

    `change` is that of the speed: -0.2 means that data move 20 % slower. It is computed from
    times, which have more digits than bandwidths. `noise` is the larger one of both runs' noises:
    the spread of the repeats, or UNKNOWN_NOISE without repeats.
    """

    series: Series
    size: int
    half: Half
    before: Figures
    after: Figures
    change: float
    noise: float
    mark: Literal["slower", "faster", "same"]


class Difference(Value):
    """A fact about the tests that is not the same in both runs; empty where it is not known."""

    name: str
    before: str
    after: str


class Comparison(Value):
    """All measurements that both runs have, those that one of them lacks, and different facts."""

    changes: tuple[MeasurementChange, ...]
    only_before: int
    only_after: int
    differences: tuple[Difference, ...]

    def marked(self, mark: Literal["slower", "faster", "same"]) -> int:
        """Return the number of changes with the mark."""
        return sum(change.mark == mark for change in self.changes)


def compare(before: Sequence[Table], after: Sequence[Table]) -> Comparison:
    """Return the comparison, in the order of the tables of `before`."""
    first, second = measurements(before), measurements(after)
    changes = tuple(
        _change(series, point, figures, second[series][point])
        for series, points in first.items()
        for point, figures in points.items()
        if point in second.get(series, {})
    )
    return Comparison(
        changes=changes,
        only_before=_count(first) - len(changes),
        only_after=_count(second) - len(changes),
        differences=tuple(_differences(before, after)),
    )


def _count(all_of: Measurements) -> int:
    return sum(map(len, all_of.values()))


def _change(
    series: Series, point: tuple[int, Half], before: Figures, after: Figures
) -> MeasurementChange:
    change = before.time_us / after.time_us - 1
    noise = max(_noise(before), _noise(after))
    mark: Literal["slower", "faster", "same"] = "slower" if change < 0 else "faster"
    if abs(change) <= noise:
        mark = "same"
    size, half = point
    return MeasurementChange(
        series=series, size=size, half=half, before=before, after=after,
        change=change, noise=noise, mark=mark,
    )  # fmt: skip


def _noise(figures: Figures) -> float:
    return UNKNOWN_NOISE if figures.repeats == 1 else max(figures.spread, LEAST_NOISE)


def _differences(before: Sequence[Table], after: Sequence[Table]) -> Iterable[Difference]:
    for name, field in (
        ("nccl-tests", "nccl_tests"),
        ("NCCL", "nccl"),
        ("plugin", "plugin"),
        ("CUDA driver", "driver"),
        ("ranks", "ranks"),
        ("iterations", "iterations"),
        ("warm-up", "warmup"),
    ):
        first, second = (_values(field, tables) for tables in (before, after))
        if first != second:
            yield Difference(name=name, before=first, after=second)


def _values(field: str, tables: Sequence[Table]) -> str:
    """Return the values that the fact has in the tables, each once."""
    return ", ".join(dict.fromkeys(filter(None, (_value(field, table.facts) for table in tables))))


def _value(field: str, facts: Facts) -> str:
    if field == "ranks":
        return str(len(facts.ranks) or "")
    if field in Facts.__dataclass_fields__:
        return str(getattr(facts, field))
    return str(facts.flags.get(field, ""))
