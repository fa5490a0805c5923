"""Results of a run's output, stored in the history while the run goes on: tables and findings."""

from pathlib import Path

from engine.contract.events import (
    AttemptStarted,
    ClockSet,
    Event,
    GateJudged,
    NetworkSeen,
    Notified,
    Output,
    OutputJudged,
)
from engine.record.history import History, KeptFinding
from engine.record.journal_copy import recorded_events
from engine.record.nccl_tests import TableParser

MOST_ROWS = 100_000
"""The tables and rows of a run that are stored: a job may print what looks like them."""


class KeptResults:
    """The results of one run; the same events a second time change nothing."""

    def __init__(self, run_id: str) -> None:
        self._run_id = run_id
        self._tables = TableParser()
        self._rows: dict[int, int] = {}
        self._findings = 0
        self._size = 0
        """The number of tables and rows so far."""

    def see(self, event: Event, history: History) -> None:
        """Store the tables, findings and attempts that the event adds."""
        if isinstance(event, (NetworkSeen, OutputJudged)) or (
            isinstance(event, GateJudged) and event.level != "proof"
        ):
            seen = KeptFinding(kind=event.kind, level=event.level, rank=event.rank, text=event.text)
            self._keep(seen, history)
        elif isinstance(event, AttemptStarted):
            history.mark_attempt(self._run_id, event.number)
        elif isinstance(event, ClockSet) or (isinstance(event, Notified) and event.error):
            rank = (event.rank or 0) if isinstance(event, ClockSet) else 0
            finding = KeptFinding(kind=event.kind, level="warning", rank=rank, text=event.text)
            self._keep(finding, history)
        if self._size > MOST_ROWS:
            return
        for number in self._tables.feed(event):
            # Output only adds rows; a program's JSON and the run's end may change earlier ones.
            first = self._rows.get(number, 0) if isinstance(event, Output) else 0
            table = self._tables.table(number, first)
            history.keep_table(self._run_id, number, table, first)
            before, self._rows[number] = self._rows.get(number, -1), first + len(table.rows)
            self._size += self._rows[number] - before
        if self._size > MOST_ROWS:
            text = f"the run's tables have more than {MOST_ROWS:,} rows: the rest is not kept"
            finding = KeptFinding(kind="output_judged", level="warning", rank=0, text=text)
            self._keep(finding, history)

    def _keep(self, finding: KeptFinding, history: History) -> None:
        history.keep_finding(self._run_id, self._findings, finding)
        self._findings += 1


def keep_results(run_id: str, runs: Path, history: History) -> None:
    """Store the results of a run of which this machine has the whole journal."""
    results = KeptResults(run_id)
    for event in recorded_events(runs, run_id):
        results.see(event, history)
