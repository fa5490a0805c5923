"""The comparison of two runs: which measurements changed by more than their noise."""

from collections.abc import Iterable, Sequence
from typing import Literal

from config.models import Value
from engine.analysis.measurements import Figures, Half, Measurements, Series, measurements
from engine.contract.table import Facts
from engine.record.nccl_tests import Table

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
