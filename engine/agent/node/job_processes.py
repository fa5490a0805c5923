"""The processes of a run's job on this node, found by what is in their environment."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

LAUNCHERS = (
    ("RANK", "WORLD_SIZE", "LOCAL_RANK"),  # torchrun, DeepSpeed
    ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE", ""),
    ("PMI_RANK", "PMI_SIZE", ""),
    ("HOROVOD_RANK", "HOROVOD_SIZE", ""),
    ("SLURM_PROCID", "SLURM_NTASKS", ""),
    ("RANK", "WORLD_SIZE", ""),
)
"""Variables of rank and size, and one that must exist too. A launcher may start another one: the
first of this list that a process of the node has is the one that started the ranks."""
RANK_VARIABLES = {
    "PMIX_RANK",
    *(name for rank, _, required in LAUNCHERS for name in (rank, required) if name),
}
"""The variables that differ between the ranks of a node."""
_READ = RANK_VARIABLES | {size for _, size, _ in LAUNCHERS}
_PARENT = 1  # in /proc/PID/stat, behind the name: proc(5)


class JobProcess(NamedTuple):
    """A process of the job. `variables` are those of its launcher for rank and size, no others."""

    pid: int
    parent: int
    command: str
    variables: Mapping[str, str]


def job_processes(marks: Mapping[str, str]) -> Iterator[JobProcess]:
    """Yield the processes that have the variables `marks` with these values, in any order."""
    for folder in Path("/proc").glob("[0-9]*"):
        with contextlib.suppress(OSError, ValueError):  # it has ended, or is somebody else's
            pairs = (folder / "environ").read_bytes().split(b"\0")
            known = dict(os.fsdecode(pair).partition("=")[::2] for pair in pairs)
            if any(known.get(name) != value for name, value in marks.items()):
                continue
            parent = int(stat_fields(folder / "stat")[_PARENT])
            command = (folder / "comm").read_text(errors="replace").strip()
            variables = {name: known[name] for name in _READ if known.get(name, "").isdigit()}
            yield JobProcess(int(folder.name), parent, command, variables)


def stat_fields(stat: Path) -> list[str]:
    """Return the fields of a `stat` file behind the program's name, from the state on: proc(5)."""
    return stat.read_text(errors="replace").rpartition(")")[2].split()
