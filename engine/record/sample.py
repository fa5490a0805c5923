"""A sample of a node, as the agent writes it: node_counters.py and gpu_counters.py."""

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from pydantic import Field, FiniteFloat, ValidationError

from config.bounds import Rank, Time, Whole
from config.models import Value

GpuRow = tuple[FiniteFloat | None, ...]


class Sample(Value):
    """A sample of a node at `time`, in seconds since 1970.

    Counters count since the node's boot, those of `job` since the run's start on the node. Sizes
    are in bytes, first used, then in total; `disk`, `network` and `rdma` are bytes read and
    written, or received and sent. The other numbers of `rdma` are EFA's: packets dropped, bytes
    sent again, timeouts, peers that did not respond. `job` has processor seconds and bytes of
    memory. `gpus` are rows of GpuReading. What the node could not read is None.
    """

    time: Time
    rank: Rank
    cpu_s: FiniteFloat | None = None
    cores: Whole | None = None
    memory: tuple[Whole, Whole] | None = None
    space: tuple[Whole, Whole] | None = None
    disk: tuple[Whole, Whole] | None = None
    network: tuple[Whole, Whole] | None = None
    rdma: tuple[Whole, Whole, Whole, Whole, Whole, Whole] | None = None
    job: tuple[FiniteFloat, FiniteFloat] | None = None
    gpus: tuple[GpuRow, ...] = Field(default=())
    sources: tuple[str, ...] = ()

    @property
    def readings(self) -> Iterator["GpuReading"]:
        """The GPUs in the order of their numbers."""
        for row in self.gpus:
            if len(row) == len(GpuReading._fields):
                yield GpuReading(int(row[0] or 0), *row[1:])


class GpuReading(NamedTuple):
    """A GPU at the time of a sample; None is unknown.

    `percent` is the part of the last second in which it computed. Memory is in MiB. The errors are
    ECC's since the driver's start, `sent` and `received` bytes over NVLink.
    """

    gpu: int
    percent: float | None
    memory: float | None
    memory_total: float | None
    watts: float | None
    celsius: float | None
    corrected: float | None
    uncorrected: float | None
    sent: float | None
    received: float | None


def parse_samples(lines: Iterable[str | bytes]) -> Iterator[Sample]:
    """Yield the samples of a record; lines that are torn or of another version are left out."""
    for line in lines:
        try:
            yield Sample.model_validate_json(line)
        except ValidationError:  # the disk was full, or a supervisor was killed
            continue
