"""The samples of a run's nodes on the head: the newest ones in memory, a thinned record on disk.

The record is next to the journal, with a budget. Samples have counters, so a record that has fewer
of them loses no byte that a network moved. Nothing of a run depends on samples: a full disk, or one
that cannot be read, only loses some.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from collections.abc import Callable
from pathlib import Path

from engine.agent.journal.clock import RunClock
from engine.agent.journal.journal_file import Message
from engine.agent.journal.memory_folder import memory_folder
from engine.agent.journal.rotating_file import SIZE, PieceFile, budget_on
from engine.contract.event import Event
from engine.contract.head_events import GpusIdle
from engine.contract.names import NEWEST, RECORD
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Sample

IDLE_S = 600.0
"""Seconds after which a GPU without work counts as idle: loading data may take minutes."""
MOST_PERCENT = 1.0
"""The utilisation that an idle GPU may have. A rank that waits in NCCL keeps its GPU at 100 %."""
GAP_S = 60.0
"""Seconds without a sample after which a GPU's idle time begins anew."""


class IdleGpus:
    """The idle GPUs of a run, by the samples of its nodes."""

    def __init__(self) -> None:
        self._since: dict[int, dict[int, float]] = {}
        self._seen: dict[int, float] = {}
        self._reported: set[tuple[int, int]] = set()

    def add(self, rank: int, sample: Message) -> list[int]:
        """Take a sample of a node into account; return the GPUs that became idle with it."""
        now: float = sample["time"]
        gpus = sample.get("gpus")
        if not gpus:
            return []
        if now - self._seen.get(rank, now) > GAP_S:
            self._since.pop(rank, None)
        self._seen[rank] = now
        since = self._since.setdefault(rank, {})
        for gpu, percent, *_ in gpus:
            if percent is None or percent > MOST_PERCENT:
                since.pop(gpu, None)
                self._reported.discard((rank, gpu))
            else:
                since.setdefault(gpu, now)
        became = [gpu for gpu in self.of(rank, now) if (rank, gpu) not in self._reported]
        self._reported.update((rank, gpu) for gpu in became)
        return became

    def of(self, rank: int, now: float) -> dict[int, float]:
        """Return the node's idle GPUs, each with the time since which it has no work."""
        since = self._since.get(rank, {})
        return {gpu: at for gpu, at in sorted(since.items()) if now - at >= IDLE_S}


BUDGET = 64 << 20
"""Bytes of a record on its disk, compressed, if that is not smaller than the journal's budget."""
_MOST_S = 60.0
_LEAST_S = 5.0
_PART = 100
_WRITE_S = 1.0


def newest_path(folder: Path) -> Path:
    """Return the path of the newest samples of the run with this folder."""
    return memory_folder() / f"{folder.name}.{NEWEST}"


def record_interval(age_s: float) -> float:
    """Return the seconds between two recorded samples of a node in a run of this age.

    A hundredth of the age: a run of 10 minutes has about 100 samples, one of three days 4,500.
    """
    return min(_MOST_S, max(_LEAST_S, age_s / _PART))


class Samples:
    """The samples of one run. `folder` is the run's.

    `record` writes an event to the journal: `gpus_idle` when GPUs of a node have become idle. The
    record may have `budget` bytes, in pieces of `piece`.
    """

    def __init__(
        self,
        plan: LaunchPlan,
        folder: Path,
        record: Callable[[Event], object],
        budget: int = BUDGET,
        piece: int = SIZE,
    ) -> None:
        self._folder, self._record = folder, record
        self._budget, self._piece = budget, piece
        self._run = {key: getattr(plan, key) for key in ("run_id", "name", "cluster")}
        self._run["nodes"] = [node.name for node in plan.nodes]
        self._newest: dict[int, list[Message]] = {}
        self._recorded: dict[int, float] = {}
        self._began: float | None = None
        self._idle = IdleGpus()
        self._file: PieceFile | None = None
        self._writing: asyncio.TimerHandle | None = None

    def begin(self, plan: LaunchPlan, clock: RunClock) -> None:
        """Begin an attempt: its ranks may be other nodes than those of the one before.

        Readers compute the ages of samples with the offset of `clock`, which is in the file.
        """
        self._run["clock"] = clock.offset
        self._run["nodes"] = [node.name for node in plan.nodes]
        self._newest.clear()
        self._idle = IdleGpus()

    def add(self, rank: int, event: Sample) -> None:
        """Take a node's sample into account."""
        sample: Message = {"rank": rank, "time": event.time, **event.counters}
        self._newest[rank] = [*self._newest.get(rank, [])[-1:], sample]
        became = self._idle.add(rank, sample)
        if became:
            self._write()  # whoever reads the warning finds these GPUs in `gpuctl top`
            since = min(self._idle.of(rank, sample["time"])[gpu] for gpu in became)
            seconds = round(sample["time"] - since)
            self._record(GpusIdle(rank, tuple(became), seconds))
        self._began = self._began or sample["time"]
        due = self._recorded.get(rank, 0.0) + record_interval(sample["time"] - self._began)
        if event.is_last or sample["time"] >= due - _LEAST_S / 2:  # ticks are not exact
            self._recorded[rank] = sample["time"]
            self._append(sample)
        if self._writing is None and not became:
            self._writing = asyncio.get_running_loop().call_later(_WRITE_S, self._write)

    def close(self) -> None:
        """Close the record, and remove the newest samples."""
        self._cancel_writing()
        with contextlib.suppress(OSError):  # it was never written
            newest_path(self._folder).unlink()
        if self._file is not None:
            self._file.close()
            self._file = None

    def _cancel_writing(self) -> None:
        if self._writing is not None:
            self._writing.cancel()
            self._writing = None

    def _append(self, sample: Message) -> None:
        line = json.dumps(sample, separators=(",", ":")).encode() + b"\n"
        with contextlib.suppress(OSError):  # the disk is full: the run goes on without the sample
            if self._file is None:
                path = self._folder / RECORD
                self._file = PieceFile(
                    path, min(self._budget, budget_on(self._folder)), self._piece
                )
                self._file.cut()
            self._file.append(line)

    def _write(self) -> None:
        """Write the newest samples for those who watch the run (`gpuctl top`, Prometheus)."""
        self._cancel_writing()
        idle = {
            rank: self._idle.of(rank, samples[-1]["time"]) for rank, samples in self._newest.items()
        }
        text = json.dumps({**self._run, "samples": self._newest, "idle": idle})
        path = newest_path(self._folder)
        part = path.with_name(f"{path.name}.part")
        with contextlib.suppress(OSError):  # no memory is left for the file: the next one may fit
            path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "w") as out:
                out.write(text + "\n")
            part.replace(path)
