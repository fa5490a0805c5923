"""Samples of nodes, and the client's copy of a run's: fetched at the run's end, kept with its logs.

The head's record is a PieceFile of JSON lines (agent/metrics/samples.py); the copy is one file.
"""

import gzip
import os
import shlex
import zlib
from collections.abc import Iterable, Iterator
from itertools import groupby
from operator import attrgetter
from pathlib import Path
from typing import NamedTuple

from pydantic import Field, FiniteFloat, ValidationError

from config.bounds import Rank, Time, Whole
from config.errors import RunError
from config.foreign import MOST
from config.models import Value
from engine.contract.names import RECORD
from engine.plan.remote_paths import run_paths
from engine.record.journal_copy import samples_path
from nodes.inventory import Inventory
from nodes.kept_connections import connect

GpuRow = tuple[FiniteFloat | None, ...]


class Sample(Value):
    """A sample of a node at `time`, in seconds since 1970, as the agent writes it.

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


def by_rank(samples: Iterable[Sample]) -> dict[int, list[Sample]]:
    """Return the samples of each node, in the order of ranks and of times."""
    ordered = sorted(samples, key=attrgetter("rank", "time"))
    return {rank: list(own) for rank, own in groupby(ordered, attrgetter("rank"))}


LARGEST = 512 << 20
"""The most bytes of a record, not compressed: a job is root on the head, and could send more."""


async def fetch_record(inventory: Inventory, run_id: str, runs: Path) -> Path | None:
    """Copy the run's samples to this machine; None if the head has none.

    Raises NodeError if the head does not answer, and RunError if the copy cannot be written.
    """
    path = samples_path(runs, run_id)
    part = path.with_name(f"{path.name}.{os.getpid()}.part")
    size = 0
    try:
        path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with gzip.open(part, "wb", compresslevel=6) as file:
            async with connect(inventory) as connections:
                question = _question(inventory, run_id)
                async for line in connections.lines(inventory.nodes[0], question):
                    size += len(line) + 1
                    if size > LARGEST:
                        break
                    file.write(line.encode() + b"\n")
        if not size:
            return None
        part.replace(path)
    except OSError as error:
        raise RunError(f"{path} cannot be written: {error.strerror}", "") from error
    finally:
        part.unlink(missing_ok=True)
    return path


def _question(inventory: Inventory, run_id: str) -> str:
    """Return the shell command that prints the record, piece by piece, in their order.

    Only the piece that grows is not compressed, so it is the last one but for the first.
    """
    first, extension = RECORD.split(".")
    return (
        f"cd {shlex.quote(run_paths(inventory, run_id).folder)} 2> /dev/null || exit 0;"
        f" for piece in {RECORD} {first}-*.{extension}.gz {first}-*.{extension}; do"
        ' test -e "$piece" || continue; case "$piece" in'
        ' *.gz) gzip -dc "$piece";; *) cat "$piece";; esac; done; exit 0'
    )


def _lines(file: gzip.GzipFile, largest: int) -> Iterator[bytes]:
    """Yield the lines; raise EOFError for more than `largest` bytes, which no copy has."""
    size = 0
    while line := file.readline(MOST):
        size += len(line)
        if size > largest:
            raise EOFError(f"it has more than {largest >> 20} MiB")
        yield line


def recorded_samples(runs: Path, run_id: str, largest: int = LARGEST) -> Iterator[Sample]:
    """Yield the samples of the copy; none without a copy. Raise RunError if it is damaged."""
    path = samples_path(runs, run_id)
    if not path.exists():
        return
    try:
        with gzip.open(path) as file:
            yield from parse_samples(_lines(file, largest))
    except (OSError, EOFError, zlib.error) as error:
        raise RunError(f"{path} is damaged: {error}", "remove the file") from error
