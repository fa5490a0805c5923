"""All that is known of a run, as one value."""

from engine.analysis.bisect.report import find
from engine.analysis.metrics.curves import course
from engine.analysis.metrics.summary import summaries
from engine.analysis.report import Report, pairs_in
from engine.analysis.timeline import timeline
from engine.record.history import History, RunRecord
from engine.record.journal_copy import recorded_events
from engine.record.metrics_record import recorded_samples
from operations.chosen_target import ChosenTarget

__all__ = ["Report", "run_report"]


def run_report(chosen: ChosenTarget, record: RunRecord) -> Report:
    """Return what is known of the run; a run of a bisect brings the whole bisect."""
    runs = chosen.state / "runs"
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
    )
