"""The bandwidths of a run, drawn in the terminal."""

from math import floor, log2, log10
from shutil import get_terminal_size
from typing import TYPE_CHECKING

import plotext

from engine.analysis.comparison import HALVES, measurements

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from engine.analysis.comparison import Figures, Half, Series
    from operations.results import Table

_HEIGHT = 20
_UNKNOWN_WIDTH = 100  # characters, in a pipe
_MARKERS = ("o", "x")  # one for each half: the plot has no colours


def plot_lines(tables: "Sequence[Table]") -> "Iterator[str]":
    """Yield a plot of bus bandwidth over size for each test, on logarithmic axes."""
    width = get_terminal_size((_UNKNOWN_WIDTH, _HEIGHT)).columns
    for series, points in measurements(tables).items():
        yield ""
        yield from _plot(series, points, width)


def _plot(
    series: "Series", points: "Mapping[tuple[int, Half], Figures]", width: int
) -> "Iterator[str]":
    drawn = {point: row.busbw for point, row in points.items() if row.busbw > 0}
    if not drawn:
        yield f"{series.title}: no bandwidth above 0.00 GB/s"
        return
    yield f"{series.title}: bus bandwidth in GB/s over size (o out-of-place, x in-place)"
    plotext.clear_figure()
    plotext.theme("clear")
    plotext.plotsize(width, _HEIGHT)
    for half, marker in zip(HALVES, _MARKERS, strict=True):
        sizes = [size for size, of in drawn if of == half]
        if sizes:
            busbw = [log10(drawn[size, half]) for size in sizes]
            plotext.plot([log2(size) for size in sizes], busbw, marker=marker)
    most = max(width // 12, 2)
    sizes = sorted({size for size, _ in drawn})[:: -(-len({size for size, _ in drawn}) // most)]
    plotext.xticks([log2(size) for size in sizes], [_size(size) for size in sizes])
    ticks = _ticks(min(drawn.values()), max(drawn.values()))
    plotext.yticks([log10(tick) for tick in ticks], [f"{tick:g}" for tick in ticks])
    for line in plotext.uncolorize(plotext.build()).splitlines():
        yield line.rstrip()


def _ticks(least: float, most: float) -> list[float]:
    """Return 1, 2 and 5 times the powers of ten between the two; at least both of them."""
    powers = range(floor(log10(least)), floor(log10(most)) + 1)
    ticks = [step * 10.0**power for power in powers for step in (1, 2, 5)]
    return [tick for tick in ticks if least <= tick <= most] or [least, most]


def _size(size: int) -> str:
    for unit, name in ((1 << 30, "G"), (1 << 20, "M"), (1 << 10, "K")):
        if size >= unit:
            return f"{size / unit:g}{name}"
    return str(size)
