"""The log of a run: what it printed, as far as a client of this machine has received it."""

from typing import TYPE_CHECKING

from config.command_text import command_text
from config.errors import InputError
from engine.record.history import History, RunRecord
from engine.record.journal_copy import kept_path, recorded_events
from operations import runs
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher

if TYPE_CHECKING:
    from engine.session.following import OnEvent


def check_kept(chosen: ChosenTarget, record: RunRecord) -> None:
    """Raise InputError if the run is over and its log was removed."""
    path = kept_path(chosen.runs, record.run_id, "journal.jsonl")
    if record.is_over and not path.exists():
        raise InputError(
            f"the logs of run {record.run_id} are not kept any more",
            "30 days and 10 GiB are kept;"
            f" {command_text('gpuctl results {}', record.run_id)} shows its results",
        )


def read_log(
    chosen: ChosenTarget,
    record: RunRecord,
    *,
    on_event: "OnEvent",
    follow: bool = False,
    watcher: Watcher = LoggingWatcher(),
) -> None:
    """Read the run's events from its beginning; with `follow` until its end.

    Without `follow` they are those that this machine has. Raises RunError for a damaged log.
    """
    if follow and not record.is_over:
        runs.follow_journal(chosen, record, on_event=on_event, watcher=watcher)
        return
    for event in recorded_events(chosen.runs, record.run_id):
        on_event(event)


def missing_part(chosen: ChosenTarget, run_id: str) -> str:
    """Return why the log of a run may be incomplete, of which the end was not read."""
    with History(chosen.runs) as history:
        record = history.find(run_id)
    if record.is_over:
        return f"the output of run {run_id} may be incomplete: {record.reason}"
    return (
        f"run {run_id} is not over, and its newest output may be missing:"
        f" {command_text('gpuctl logs {} -f', run_id)} fetches it"
    )
