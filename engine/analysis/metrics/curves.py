"""The course of a run's metrics: of all its nodes the lowest, the mean and the highest value."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise

from config.models import Value
from engine.analysis.metrics.usage import rate
from engine.record.metrics_record import Sample, by_rank

POINTS = 200
"""The most points of a curve."""


class CurvePoint(Value):
    """The values of the nodes at about `at` seconds after the first sample."""

    at: float
    lowest: float
    mean: float
    highest: float


class Curve(Value):
    """The course of one metric; `unit` is that of its values."""

    title: str
    unit: str
    points: tuple[CurvePoint, ...]


class CourseOfRun(Value):
    """The curves of a run: those of which its samples have values."""

    curves: tuple[Curve, ...] = ()


def course(samples: Iterable[Sample]) -> CourseOfRun:
    """Return the curves of a run."""
    nodes = by_rank(samples).values()
    curves = [
        Curve(title=title, unit=unit, points=points)
        for title, unit, values in _CURVES
        if (points := _points([values(own) for own in nodes]))
    ]
    return CourseOfRun(curves=tuple(curves))


Values = list[tuple[float, float]]
"""The values of one node with their times."""


def _points(of_nodes: Sequence[Values]) -> tuple[CurvePoint, ...]:
    """Return the points of a curve; the values of a node in one step of time are averaged."""
    known = [values for values in of_nodes if values]
    if not known:
        return ()
    begin = min(values[0][0] for values in known)
    end = max(values[-1][0] for values in known)
    step = max(5.0, (end - begin) / POINTS)
    steps: dict[int, list[float]] = {}
    for values in known:
        own: dict[int, list[float]] = {}
        for at, value in values:
            own.setdefault(int((at - begin) / step), []).append(value)
        for number, some in own.items():
            steps.setdefault(number, []).append(sum(some) / len(some))
    return tuple(
        CurvePoint(
            at=round(number * step, 1),
            lowest=round(min(some), 2),
            mean=round(sum(some) / len(some), 2),
            highest=round(max(some), 2),
        )
        for number, some in sorted(steps.items())
    )


def _gpu_percent(samples: Sequence[Sample]) -> Values:
    values = []
    for sample in samples:
        known = [gpu.percent for gpu in sample.readings if gpu.percent is not None]
        if known:
            values.append((sample.time, sum(known) / len(known)))
    return values


def _gpu_memory(samples: Sequence[Sample]) -> Values:
    values = []
    for sample in samples:
        known = [gpu.memory for gpu in sample.readings if gpu.memory is not None]
        if known:
            values.append((sample.time, max(known) / 1024))
    return values


def _memory(samples: Sequence[Sample]) -> Values:
    return [(sample.time, sample.memory[0] / (1 << 30)) for sample in samples if sample.memory]


def _cores(samples: Sequence[Sample]) -> Values:
    return _rates([(sample.time, sample.cpu_s) for sample in samples], 1)


def _moved(name: str) -> Callable[[Sequence[Sample]], Values]:
    """Return a function for the gigabytes a second in both directions together."""

    def values(samples: Sequence[Sample]) -> Values:
        sums = [
            (sample.time, None if (pair := getattr(sample, name)) is None else pair[0] + pair[1])
            for sample in samples
        ]
        return _rates(sums, 1e9)

    return values


def _rates(counted: Sequence[tuple[float, float | None]], unit: float) -> Values:
    rates = []
    for (begin, before), (end, after) in pairwise(counted):
        each_second = rate(before, after, end - begin)
        if each_second is not None:
            rates.append((end, each_second / unit))
    return rates


_CURVES: tuple[tuple[str, str, Callable[[Sequence[Sample]], Values]], ...] = (
    ("GPUs in use", "%", _gpu_percent),
    ("GPU memory, fullest GPU", "GiB", _gpu_memory),
    ("EFA, received and sent", "GB/s", _moved("rdma")),
    ("Network, received and sent", "GB/s", _moved("network")),
    ("Processors in use", "cores", _cores),
    ("Memory in use", "GiB", _memory),
    ("Disk, read and written", "GB/s", _moved("disk")),
)
