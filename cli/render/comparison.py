"""A comparison of two runs as text and as a document."""

from typing import TYPE_CHECKING, Any

from config.quantities import counted
from engine.analysis.comparison import LEAST_NOISE, UNKNOWN_NOISE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from engine.analysis.comparison import Comparison, MeasurementChange, Series
    from operations.known import RunRecord

_RIGHT = ("size\nbytes", "before\nus", "after\nus", "before\nGB/s", "after\nGB/s")
_HEAD = (*_RIGHT[:1], "half", *_RIGHT[1:], "change", "noise", "")

DROP = ("noise", "before\nus", "after\nus")
"""The columns that a narrow terminal lacks, the first of them first."""


def comparison_lines(
    runs: "tuple[RunRecord, RunRecord]", comparison: "Comparison", out: "Output"
) -> "Iterator[str]":
    """Yield which runs, in which facts they differ, a table of each test, and the sums."""
    for word, run in zip(("Before", "After"), runs, strict=True):
        reason = f": {run.reason}" if run.reason and run.status != "done" else ""
        yield f"{word}: run {run.run_id}, {run.status}{reason}, {run.started:%Y-%m-%d %H:%M} UTC"
    for difference in comparison.differences:
        before, after = difference.before or "unknown", difference.after or "unknown"
        yield f"Different {difference.name}: {before}, then {after}"
    of_series: dict[Series, list[MeasurementChange]] = {}
    for change in comparison.changes:
        of_series.setdefault(change.series, []).append(change)
    for series, changes in of_series.items():
        yield ""
        yield series.title
        right = (*_RIGHT, "change", "noise")
        yield from out.table(_HEAD, map(_cells, changes), right=right, drop=DROP)
    if of_series:
        yield ""
    yield from _sums(comparison)


def comparison_document(
    runs: "tuple[RunRecord, RunRecord]", comparison: "Comparison"
) -> dict[str, Any]:
    """Return the comparison for scripts, which read `slower`."""
    before, after = (run.model_dump(mode="json") for run in runs)
    counts = {mark: comparison.marked(mark) for mark in ("slower", "faster", "same")}
    return {"before": before, "after": after, **counts, **comparison.model_dump(mode="json")}


def _cells(change: "MeasurementChange") -> tuple[str, ...]:
    before, after = change.before, change.after
    return (
        str(change.size),
        change.half,
        *(f"{figures.time_us:.1f}" for figures in (before, after)),
        *(f"{row.busbw:.2f}" for row in (before, after)),
        f"{100 * change.change:+.1f} %",
        f"{100 * change.noise:.1f} %",
        "" if change.mark == "same" else change.mark,
    )


def _sums(comparison: "Comparison") -> "Iterator[str]":
    if not comparison.changes:
        yield "No measurement is in both runs."
    else:
        yield (
            f"Slower: {comparison.marked('slower')}, faster: {comparison.marked('faster')},"
            f" same within the noise: {comparison.marked('same')}."
        )
        yield (
            f"Noise is the spread of a run's repeats, at least {100 * LEAST_NOISE:g} %;"
            f" {100 * UNKNOWN_NOISE:g} % for a run without repeats."
        )
    for word, count in (("Before", comparison.only_before), ("After", comparison.only_after)):
        if count:
            yield f"Only in {word}: {counted(count, 'measurement')}."
