"""A run that is over, shown again from its journal."""

from pathlib import Path

from config.command_text import command_text
from config.errors import GpuctlError, InputError, RunError
from config.folders import user_path
from engine.plan.remote_paths import saved_folder
from engine.record.events import FirstEvent
from engine.record.history import RunRecord
from engine.record.journal_copy import evidence_folder, recorded_events
from engine.record.outputs_folder import choose_outputs, have_come_back, outputs_folder
from engine.record.result import ResultCollector
from engine.session.following import OnEvent
from engine.session.outputs import fetch_saved
from operations.chosen_target import ChosenTarget
from operations.files import fetch
from operations.known import fetch_journal
from operations.lost_head import power_off_hint
from operations.run_client import EndedRun
from operations.watcher import LoggingWatcher, Watcher


def first_event(
    chosen: ChosenTarget,
    record: RunRecord,
    *,
    outputs: Path | None = None,
    watcher: Watcher = LoggingWatcher(),
) -> FirstEvent:
    """Return the first event of a run that is over; InputError if its logs are not kept any more.

    The journal is this machine's copy, or that of a colleague's run from the team's bucket, or what
    a lost run left in the shared storage of its cluster. Outputs that have not come back yet come
    to `outputs/RUN`; InputError if they are in another folder.
    """
    if outputs is not None:
        parent = user_path(outputs).absolute()
        choose_outputs(chosen.runs, record.run_id, parent)
    fetch_journal(chosen, record, watcher)
    if record.is_lost:
        _fetch_saved(chosen, record, watcher)
    event = next(recorded_events(chosen.runs, record.run_id), None)
    if not isinstance(event, FirstEvent):
        raise InputError(
            f"the logs of run {record.run_id} are not kept any more",
            "30 days and 10 GiB are kept;"
            f" {command_text('gpuctl results {}', record.run_id)} shows its results",
        )
    return event


def replay(
    chosen: ChosenTarget,
    record: RunRecord,
    started: FirstEvent,
    *,
    on_event: OnEvent,
    watcher: Watcher = LoggingWatcher(),
) -> EndedRun:
    """Show the run's events again, and fetch its outputs if no client has.

    Nothing is removed: the cluster may be in use again. RunError for a run without a result.
    """
    runs, collector = chosen.runs, ResultCollector()
    for event in recorded_events(runs, record.run_id):
        collector.see(event)
        on_event(event)
    result = collector.result()
    if result is None:
        raise RunError(f"run {record.run_id} failed: {record.reason}", "")
    folder = evidence_folder(runs, record.run_id)
    evidence = folder if folder.exists() else None
    outputs = late_outputs(chosen, started, watcher)
    return EndedRun(result, evidence=evidence, outputs=outputs, earlier_cost_usd=record.cost_usd)


def late_outputs(chosen: ChosenTarget, started: FirstEvent, watcher: Watcher) -> Path | None:
    """Return the folder of the run's outputs; fetch them if no client has, and the cluster is up.

    A client that only waits (`gpuctl wait`, `gpuctl logs`) leaves them on the nodes.
    """
    runs = chosen.runs
    if not started.outputs:
        return None
    kept = outputs_folder(runs, started.run_id)
    if have_come_back(kept):
        watcher.note(f"-- outputs are in {kept}")
        return kept
    if kept.exists():
        watcher.warn(f"a part of the outputs is in {kept}")
    if chosen.is_lab_down():
        return None
    try:
        inventory = chosen.cluster_store(started.cluster).inventory(started.cluster)
    except InputError:  # the cluster is gone
        return None
    fetched = fetch(started, inventory, runs, watcher)
    if fetched is None and started.saved:
        watcher.note(f"-- {power_off_hint(started.run_id, inventory)}")
    return fetched


def _fetch_saved(chosen: ChosenTarget, record: RunRecord, watcher: Watcher) -> None:
    """Take what a lost run left from the shared storage of its cluster, which `up` made again.

    An error is a warning: this machine may have a part of the run's journal.
    """
    if chosen.is_lab_down():
        return
    try:
        inventory = chosen.cluster_store(record.cluster).inventory(record.cluster)
    except InputError:  # the cluster is gone
        return
    try:
        missing = fetch_saved(record.run_id, inventory, chosen.runs)
    except GpuctlError as error:
        watcher.warn(f"what run {record.run_id} has saved did not come: {error}")
        return
    if missing is not None:
        where = saved_folder(record.run_id, inventory.shared)
        watcher.note(f"-- fetched from {where} of {inventory.cluster}")
    for line in missing or ():
        watcher.warn(f"not everything was saved: {line}")
