"""What a node uses, computed from two of its samples. Idle GPUs have a cost."""

from collections.abc import Iterable

from config.models import Value
from engine.record.metrics_record import GpuReading, Sample


class GpuUsage(Value):
    """A GPU. `idle_s` is the time without work, 0 if it is not idle; NVLink in bytes a second."""

    gpu: int
    percent: float | None
    memory_bytes: float | None
    memory_total_bytes: float | None
    watts: float | None
    celsius: float | None
    ecc_corrected: float | None
    ecc_uncorrected: float | None
    nvlink_sent_bytes_s: float | None
    nvlink_received_bytes_s: float | None
    idle_s: float = 0.0


class Usage(Value):
    """What a node uses between two samples, `seconds` apart; None is unknown.

    `cpu` and `job_cpu` are processors in use (1.0 is one core). Rates are in bytes a second.
    `age_s` is the time since the sample.
    """

    rank: int
    age_s: float
    seconds: float
    cores: int | None
    cpu: float | None
    memory_bytes: int | None
    memory_total_bytes: int | None
    disk_used_bytes: int | None
    disk_total_bytes: int | None
    disk_read_bytes_s: float | None
    disk_written_bytes_s: float | None
    network_received_bytes_s: float | None
    network_sent_bytes_s: float | None
    rdma_received_bytes_s: float | None
    rdma_sent_bytes_s: float | None
    rdma_resent_bytes_s: float | None
    job_cpu: float | None
    job_memory_bytes: float | None
    gpus: tuple[GpuUsage, ...]
    gpu_sources: tuple[str, ...]


def usage(before: Sample | None, last: Sample, idle: dict[int, float], now: float) -> Usage:
    """Return what the node uses; rates are None without an earlier sample.

    `idle` maps the node's idle GPUs to the times since which they have no work.
    """
    seconds = 0.0 if before is None else last.time - before.time
    earlier = before or Sample(time=0, rank=last.rank)

    def per_second(name: str, place: int | None = None) -> float | None:
        pair = (_value(earlier, name, place), _value(last, name, place))
        return rate(*pair, seconds)

    links = {reading.gpu: reading for reading in earlier.readings}
    return Usage(
        rank=last.rank,
        age_s=round(max(0.0, now - last.time), 1),
        seconds=round(seconds, 1),
        cores=last.cores,
        cpu=per_second("cpu_s"),
        memory_bytes=last.memory and last.memory[0],
        memory_total_bytes=last.memory and last.memory[1],
        disk_used_bytes=last.space and last.space[0],
        disk_total_bytes=last.space and last.space[1],
        disk_read_bytes_s=per_second("disk", 0),
        disk_written_bytes_s=per_second("disk", 1),
        network_received_bytes_s=per_second("network", 0),
        network_sent_bytes_s=per_second("network", 1),
        rdma_received_bytes_s=per_second("rdma", 0),
        rdma_sent_bytes_s=per_second("rdma", 1),
        rdma_resent_bytes_s=per_second("rdma", 3),
        job_cpu=per_second("job", 0),
        job_memory_bytes=last.job and last.job[1],
        gpus=tuple(
            _gpu(links.get(reading.gpu), reading, seconds, now - idle.get(reading.gpu, now))
            for reading in last.readings
        ),
        gpu_sources=last.sources,
    )


def rate(before: float | None, after: float | None, seconds: float) -> float | None:
    """Return the counter's increase per second; None if it is unknown, or began anew."""
    if before is None or after is None or seconds <= 0 or after < before:
        return None
    return round((after - before) / seconds, 3)


def _value(sample: Sample, name: str, place: int | None) -> float | None:
    value = getattr(sample, name)
    if value is None or place is None:
        return value  # type: ignore[no-any-return]
    return value[place]  # type: ignore[no-any-return]


def _gpu(before: GpuReading | None, last: GpuReading, seconds: float, idle_s: float) -> GpuUsage:
    return GpuUsage(
        gpu=last.gpu,
        percent=last.percent,
        memory_bytes=_bytes(last.memory),
        memory_total_bytes=_bytes(last.memory_total),
        watts=last.watts,
        celsius=last.celsius,
        ecc_corrected=last.corrected,
        ecc_uncorrected=last.uncorrected,
        nvlink_sent_bytes_s=rate(before.sent if before else None, last.sent, seconds),
        nvlink_received_bytes_s=rate(before.received if before else None, last.received, seconds),
        idle_s=round(idle_s),
    )


def _bytes(mebibytes: float | None) -> float | None:
    return None if mebibytes is None else mebibytes * (1 << 20)


class IdleCost(Value):
    """Idle GPUs of a node: `seconds` is the longest time, `cost_usd` that of all of them.

    The cost is the GPUs' part of the node's on-demand price; None if that is not known.
    """

    node: str
    gpus: tuple[int, ...]
    seconds: float
    cost_usd: float | None


def idle_cost(
    node: str, idle: Iterable[tuple[int, float]], of: int, price_usd_h: float | None
) -> IdleCost | None:
    """Return what a node's idle GPUs cost; None if none is idle.

    `idle` has a time for each GPU, in seconds, 0 for one that works. The node has `of` GPUs, and
    its price is in US dollars per hour, None if it is not known.
    """
    seconds_of = {gpu: seconds for gpu, seconds in idle if seconds > 0}
    if not seconds_of:
        return None
    parts = sum(seconds_of.values()) / 3600 / max(1, of, len(seconds_of))
    return IdleCost(
        node=node,
        gpus=tuple(sorted(seconds_of)),
        seconds=max(seconds_of.values()),
        cost_usd=None if price_usd_h is None else round(price_usd_h * parts, 2),
    )
