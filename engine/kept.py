"""The client's copies of journals, within a budget; results stay in the history."""

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from config.errors import RunError
from engine.agent.budget import AGE_S, Kept, beyond, size_of
from engine.history import RunRecord

SIZE = 10 << 30
"""Bytes that the client keeps of all runs together."""


def kept_runs(runs: Path, known: Iterable[RunRecord]) -> list[Kept]:
    """Return the runs whose journal and evidence are here; those that are over may go."""
    return [
        Kept(folder, size_of(folder), (record.ended or record.started).timestamp(), record.is_over)
        for record in known
        if (folder := runs / record.run_id).is_dir()
    ]


def beyond_budget(kept: list[Kept], age_s: float = AGE_S) -> list[Kept]:
    """Return the runs that are older than `age_s`, or too much together, oldest first."""
    return beyond(kept, SIZE, age_s, time.time())


def remove(kept: Iterable[Kept]) -> None:
    """Remove journals and evidence of the runs; RunError where this machine does not let us."""
    for run in kept:
        try:
            with contextlib.suppress(FileNotFoundError):  # another gpuctl removes it too
                shutil.rmtree(run.folder)
        except OSError as error:
            raise RunError(
                f"{run.folder} cannot be removed: {error.strerror}", "see to the state folder"
            ) from error
