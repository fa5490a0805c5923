"""Runs that are known: those of this machine's history, and those of the team's bucket.

What a bucket or a run that is not over needs is in modules that commands execute at their first use
(cli/lazy_modules.py): `gpuctl ps` and `gpuctl results` answer at once without one.
"""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from config.bucket import bucket_of
from config.errors import InputError
from engine.record.history import History, RunRecord
from engine.record.journal_copy import last_heard
from operations import lost_head, queue_places, shared_journals, shared_runs
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher

__all__ = ["RunRecord"]


@dataclass(frozen=True)
class ListedRun:
    """A run as it is now. `place` is its place in the queue of its cluster's head, if it waits.

    `heard` is when this machine last heard of the run; None for one that is over: it changes no
    more.
    """

    record: RunRecord
    status: str
    place: int | None = None
    heard: datetime | None = None


def history(chosen: ChosenTarget, *, watcher: Watcher = LoggingWatcher()) -> tuple[RunRecord, ...]:
    """Return all runs, newest first: with a team's bucket also those of the others."""
    share_runs(chosen, watcher)
    with History(chosen.runs) as records:
        return records.runs()


def list_runs(
    chosen: ChosenTarget, *, limit: int | None = None, watcher: Watcher = LoggingWatcher()
) -> tuple[ListedRun, ...]:
    """Return the runs as they are now, newest first, `limit` of them at most.

    A run that is not over has failed if AWS says that its head does not run any more; that is a
    warning. A head that does not answer where runs wait in its queue is one, too.
    """
    records = history(chosen, watcher=watcher)[:limit]
    if all(record.is_over for record in records):
        return tuple(ListedRun(record, record.status) for record in records)
    lost = lost_head.mark_lost(chosen, records)
    for error in lost:
        watcher.warn(error.message)
    if lost:
        with History(chosen.runs) as kept:
            records = tuple(kept.find(record.run_id) for record in records)
    places: dict[str, int] = {}
    if any(record.status == "queued" for record in records):
        places = queue_places.queue_places(chosen, records, watcher)
    runs = chosen.runs
    return tuple(
        _listed(record, places.get(record.run_id), heard(runs, record)) for record in records
    )


def _listed(record: RunRecord, place: int | None, known: datetime | None) -> ListedRun:
    if record.status != "queued" or place is None:
        return ListedRun(record, record.status, heard=known)
    now = datetime.now(UTC)  # its head was asked for its place
    return ListedRun(record, "queued" if place else "running", place or None, now)


def heard(runs: Path, record: RunRecord) -> datetime | None:
    """Return when this machine last heard of the run; None for one that is over."""
    if record.is_over:
        return None
    return last_heard(runs, record.run_id) or record.started


def newest_run(chosen: ChosenTarget) -> RunRecord:
    """Return the newest run of this machine's history; InputError if there is none."""
    with History(chosen.runs) as records:
        newest = records.runs()[:1]
    if not newest:
        raise InputError("no run was started yet", "start one with `gpuctl run FILE`")
    return newest[0]


def recorded_run(
    chosen: ChosenTarget, name: str, *, watcher: Watcher = LoggingWatcher()
) -> RunRecord:
    """Return the run with this id, else the newest with this name; InputError for an unknown one.

    The team's bucket is asked about a run that this machine does not know, or not as over.
    """
    try:
        record = _find(chosen, name)
    except InputError:
        if bucket_of(chosen.backend) is None:
            raise
    else:
        if record.is_over or bucket_of(chosen.backend) is None:
            return record
    share_runs(chosen, watcher)
    return _find(chosen, name)


def kept_run(chosen: ChosenTarget, name: str, *, watcher: Watcher = LoggingWatcher()) -> RunRecord:
    """Return the run with this id or name, as `recorded_run` does, for a reader of its journal.

    If the run is over and only the team's bucket has its journal, this machine has it afterwards.
    """
    record = recorded_run(chosen, name, watcher=watcher)
    fetch_journal(chosen, record, watcher)
    return record


def _find(chosen: ChosenTarget, name: str) -> RunRecord:
    with History(chosen.runs) as records:
        return records.find(name)


def share_runs(chosen: ChosenTarget, watcher: Watcher) -> None:
    """Exchange runs with the team's bucket; do nothing without one. An error is a warning."""
    if bucket_of(chosen.backend) is not None:
        shared_runs.share_runs(chosen, watcher)


def fetch_journal(chosen: ChosenTarget, run: RunRecord, watcher: Watcher) -> None:
    """Copy the journal of a run that is over from the team's bucket, if only that has it."""
    if run.is_over and bucket_of(chosen.backend) is not None:
        shared_journals.fetch_journal(chosen, run, watcher)
