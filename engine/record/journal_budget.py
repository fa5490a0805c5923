"""The client's copies of journals, and their budget. The history keeps all results."""

import contextlib
import shutil
import time
from collections.abc import Iterable
from pathlib import Path

from config.errors import RunError
from engine.agent.journal.run_folders import AGE_S, StoredRun, folder_size, runs_to_remove
from engine.record.history import RunRecord
from engine.record.journal_copy import kept_path

SIZE = 10 << 30
"""The budget of the client for all runs, in bytes."""


def stored_runs(runs: Path, known: Iterable[RunRecord]) -> list[StoredRun]:
    """Return the runs with files on this client; only runs that are over are removable."""
    return [
        StoredRun(
            folder,
            folder_size(folder),
            (record.ended or record.started).timestamp(),
            record.is_over,
        )
        for record in known
        if (folder := kept_path(runs, record.run_id)).is_dir()
    ]


def runs_over_budget(kept: list[StoredRun], age_s: float = AGE_S) -> list[StoredRun]:
    """Return the runs to remove, oldest first: older than `age_s`, or over SIZE in total."""
    return runs_to_remove(kept, SIZE, age_s, time.time())


def remove(kept: Iterable[StoredRun]) -> None:
    """Remove journals and evidence of the runs; raise RunError if that is not permitted."""
    for run in kept:
        try:
            with contextlib.suppress(FileNotFoundError):  # another gpuctl removes it too
                shutil.rmtree(run.folder)
        except OSError as error:
            raise RunError(
                f"{run.folder} cannot be removed: {error.strerror}",
                "make the state folder writable",
            ) from error
