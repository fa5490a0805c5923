"""All that is known of a run, as one value."""

from collections import deque
from collections.abc import Iterator
from datetime import datetime
from pathlib import Path

from config.errors import GpuctlError
from engine.analysis.bisect.report import find
from engine.analysis.metrics.summary import course, summaries
from engine.analysis.report import Report, pairs_in, timeline
from engine.record.history import History, RunRecord
from engine.record.journal_copy import kept_files, recorded_events
from engine.record.metrics_record import recorded_samples
from engine.record.outputs_folder import outputs_folder
from operations.chosen_target import ChosenTarget
from operations.run_client import Output, WholeLines
from provision.state.store import ClusterStore

__all__ = ["Report"]

LAST_LINES = 50
"""The lines of the node that failed first that a report has."""


def run_report(chosen: ChosenTarget, record: RunRecord) -> Report:
    """Return what is known of the run; a run of a bisect brings the whole bisect."""
    runs = chosen.runs
    with History(runs) as history:
        tables = history.tables(record.run_id)
        findings, setting = history.findings(record.run_id), history.setting(record.run_id)
    bisect = find(record, runs)
    samples = list(recorded_samples(runs, record.run_id))
    return Report(
        run=record,
        setting=setting,
        tables=tables,
        findings=findings,
        timeline=timeline(recorded_events(runs, record.run_id)),
        pairs=() if bisect else pairs_in(tables),
        bisect=bisect,
        used=summaries(samples),
        course=course(samples),
        last_lines=_last_lines(runs, record),
        lease_end=_lease_end(chosen, record),
        files=tuple(_files(runs, record.run_id)),
    )


def _last_lines(runs: Path, record: RunRecord) -> tuple[str, ...]:
    """Return the last lines of the node that failed first; none if no node did."""
    whole, lines = WholeLines(), deque[str](maxlen=LAST_LINES)
    for event in recorded_events(runs, record.run_id):
        if isinstance(event, Output) and event.rank == record.first_failed_rank:
            lines.extend(line.text for line in whole.feed(event))
    lines.extend(line.text for line in whole.rest())
    return tuple(lines)


def _lease_end(chosen: ChosenTarget, record: RunRecord) -> datetime | None:
    """Return when the run's cluster ends by itself, by this machine's record of it.

    A cluster of this name that was created after the run has nothing to do with it.
    """
    try:
        cluster = ClusterStore(chosen.remembered()).last_known(record.cluster)
    except GpuctlError:  # a damaged record, or a bucket that does not answer: the page goes without
        return None
    if cluster is None or cluster.lease is None or cluster.created > record.started:
        return None
    return cluster.lease.end


def _files(runs: Path, run_id: str) -> Iterator[Path]:
    """Yield the folder with the run's outputs, and what this machine has received of the run."""
    outputs = outputs_folder(runs, run_id)
    if outputs.exists():
        yield outputs
    yield from kept_files(runs, run_id)
