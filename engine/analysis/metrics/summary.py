"""The use of a run's nodes by its recorded samples: in all, and over its time."""

from collections.abc import Callable, Iterable, Sequence
from itertools import pairwise
from typing import TypeVar

from config.models import Value
from engine.agent.metrics.samples import IDLE_S, MOST_PERCENT
from engine.analysis.metrics.usage import rate
from engine.record.metrics_record import GpuReading, Sample, by_rank

T = TypeVar("T", int, float)
_GAP_S = 180.0
"""Seconds without a sample that end an idle stretch; a record has one a minute at least."""


class GpuSummary(Value):
    """A GPU during a run: means, peaks, and ECC errors that came during it; None is unknown.

    `idle_s` is the time in stretches of 10 minutes and more without work.
    """

    gpu: int
    percent: float | None
    memory_peak_bytes: float | None
    memory_total_bytes: float | None
    watts: float | None
    celsius_peak: float | None
    ecc_corrected: float | None
    ecc_uncorrected: float | None
    nvlink_bytes: float | None
    idle_s: float


class NodeSummary(Value):
    """A node during a run: means, peaks, and bytes in total; None is unknown.

    `cpu` and `job_cpu` are processors in use. `network_bytes` and `rdma_bytes` are received plus
    sent, `disk_bytes` read plus written. `seconds` is the time between its first and last sample.
    """

    rank: int
    samples: int
    seconds: float
    cores: int | None
    cpu: float | None
    memory_peak_bytes: int | None
    memory_total_bytes: int | None
    disk_bytes: float | None
    network_bytes: float | None
    rdma_bytes: float | None
    rdma_resent_bytes: float | None
    job_cpu: float | None
    job_memory_peak_bytes: float | None
    gpus: tuple[GpuSummary, ...]


def summaries(samples: Iterable[Sample]) -> tuple[NodeSummary, ...]:
    """Return a summary of each node that has samples, in the order of ranks."""
    return tuple(_node(rank, own) for rank, own in by_rank(samples).items())


def _node(rank: int, samples: Sequence[Sample]) -> NodeSummary:
    seconds = samples[-1].time - samples[0].time

    def moved(name: str, *places: int) -> float | None:
        """Return the increase of a counter, or the sum of several."""
        increases = [
            increase(
                [None if (v := getattr(sample, name)) is None else v[place] for sample in samples]
            )
            for place in places
        ]
        known = [amount for amount in increases if amount is not None]
        return sum(known) if known else None

    return NodeSummary(
        rank=rank,
        samples=len(samples),
        seconds=round(seconds, 1),
        cores=samples[-1].cores,
        cpu=_each_second(increase([sample.cpu_s for sample in samples]), seconds),
        memory_peak_bytes=_most(sample.memory[0] for sample in samples if sample.memory),
        memory_total_bytes=_most(sample.memory[1] for sample in samples if sample.memory),
        disk_bytes=moved("disk", 0, 1),
        network_bytes=moved("network", 0, 1),
        rdma_bytes=moved("rdma", 0, 1),
        rdma_resent_bytes=moved("rdma", 3),
        job_cpu=_each_second(moved("job", 0), seconds),
        job_memory_peak_bytes=_most(sample.job[1] for sample in samples if sample.job),
        gpus=_gpus(samples),
    )


def increase(values: Iterable[float | None]) -> float | None:
    """Return by how much a counter grew; where it began anew, that step is not counted.

    None if fewer than two values are known.
    """
    known = [value for value in values if value is not None]
    if len(known) < 2:
        return None
    return round(sum(max(0, after - before) for before, after in pairwise(known)), 3)


def _each_second(total: float | None, seconds: float) -> float | None:
    return None if total is None or seconds <= 0 else round(total / seconds, 2)


def _most(values: Iterable[T]) -> T | None:
    return max(values, default=None)


def _gpus(samples: Sequence[Sample]) -> tuple[GpuSummary, ...]:
    of: dict[int, list[tuple[float, GpuReading]]] = {}
    for sample in samples:
        for reading in sample.readings:
            of.setdefault(reading.gpu, []).append((sample.time, reading))
    return tuple(_gpu(gpu, of[gpu]) for gpu in sorted(of))


def _gpu(gpu: int, seen: Sequence[tuple[float, GpuReading]]) -> GpuSummary:
    def all_of(read: Callable[[GpuReading], float | None]) -> list[float]:
        return [value for _, sample in seen if (value := read(sample)) is not None]

    peak, size = _most(all_of(lambda x: x.memory)), _most(all_of(lambda x: x.memory_total))
    links = increase(all_of(lambda x: None if x.sent is None else x.sent + (x.received or 0)))
    return GpuSummary(
        gpu=gpu,
        percent=_mean(all_of(lambda x: x.percent)),
        memory_peak_bytes=None if peak is None else peak * (1 << 20),
        memory_total_bytes=None if size is None else size * (1 << 20),
        watts=_mean(all_of(lambda x: x.watts)),
        celsius_peak=_most(all_of(lambda x: x.celsius)),
        ecc_corrected=increase(all_of(lambda x: x.corrected)),
        ecc_uncorrected=increase(all_of(lambda x: x.uncorrected)),
        nvlink_bytes=links,
        idle_s=idle_seconds([(at, gpu.percent) for at, gpu in seen]),
    )


def _mean(values: Sequence[float]) -> float | None:
    return round(sum(values) / len(values), 1) if values else None


def idle_seconds(seen: Iterable[tuple[float, float | None]]) -> float:
    """Return the time in stretches of IDLE_S and more in which a GPU had no work."""
    total, begin, last = 0.0, None, 0.0
    for at, percent in seen:
        is_idle = percent is not None and percent <= MOST_PERCENT
        if begin is not None and (not is_idle or at - last > _GAP_S):
            total += last - begin if last - begin >= IDLE_S else 0.0
            begin = None
        if is_idle:
            begin, last = at if begin is None else begin, at
    if begin is not None and last - begin >= IDLE_S:
        total += last - begin
    return round(total, 1)


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
