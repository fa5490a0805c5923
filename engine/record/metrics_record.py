"""The client's copy of a run's samples: fetched from the head at the run's end, kept with its logs.

The head's record is a PieceFile of JSON lines (agent/metrics/samples.py); the copy is one file.
"""

import gzip
import os
import shlex
import zlib
from collections.abc import Iterator
from pathlib import Path

from config.errors import RunError
from config.foreign import MOST
from engine.agent.metrics.samples import RECORD
from engine.plan.remote_paths import run_folder
from engine.record.journal_copy import samples_path
from engine.record.sample import Sample, parse_samples
from nodes.inventory import Inventory
from nodes.kept_connections import connect

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
                async for line in connections.lines(inventory.nodes[0], _question(run_id)):
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


def _question(run_id: str) -> str:
    """Return the shell command that prints the record, piece by piece, in their order.

    Only the piece that grows is not compressed, so it is the last one but for the first.
    """
    first, extension = RECORD.split(".")
    return (
        f"cd {shlex.quote(run_folder(run_id))} 2> /dev/null || exit 0;"
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
