"""The logs of runs on this machine, and the removal of those beyond their budget."""

from collections.abc import Iterable
from dataclasses import dataclass

from config.errors import GpuctlError
from config.quantities import size
from engine.agent.journal.run_folders import AGE_S, StoredRun
from engine.record.history import History, RunRecord
from engine.record.journal_copy import remove, runs_over_budget, stored_runs
from operations.chosen_target import ChosenTarget
from operations.known import history
from operations.watcher import LoggingWatcher, Watcher


@dataclass(frozen=True)
class Pruning:
    """The logs that this machine has, and those of them to remove. Results stay."""

    kept: tuple[StoredRun, ...]
    removed: tuple[StoredRun, ...]


def plan_pruning(
    chosen: ChosenTarget, *, age_s: float | None = None, watcher: Watcher = LoggingWatcher()
) -> Pruning:
    """Return which logs to remove: those older than `age_s`, by default 30 days, or over 10 GiB."""
    return _pruning(chosen, history(chosen, watcher=watcher), AGE_S if age_s is None else age_s)


def prune(pruning: Pruning) -> None:
    """Remove the logs."""
    remove(pruning.removed)


def remove_old_logs(chosen: ChosenTarget, watcher: Watcher) -> None:
    """Remove logs of earlier runs beyond the budget; an error is only a warning."""
    with History(chosen.runs) as records:
        pruning = _pruning(chosen, records.runs(), AGE_S)
    try:
        prune(pruning)
    except GpuctlError as error:
        watcher.warn(str(error))
        return
    if pruning.removed:
        freed = size(sum(run.size for run in pruning.removed))
        which = ", ".join(run.folder.name for run in pruning.removed)
        watcher.note(f"-- logs removed, {freed} freed (30 days and 10 GiB are kept): {which}")


def _pruning(chosen: ChosenTarget, records: Iterable[RunRecord], age_s: float) -> Pruning:
    kept = stored_runs(chosen.runs, records)
    return Pruning(tuple(kept), tuple(runs_over_budget(kept, age_s)))
