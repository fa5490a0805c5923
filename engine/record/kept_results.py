"""Results of a run's output, stored in the history while the run goes on: tables and findings."""

from pathlib import Path

from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    GateJudged,
    HangJudged,
    NetworkSeen,
    Notified,
    OutputJudged,
    TableRead,
)
from engine.contract.table import MOST_ROWS
from engine.contract.worker_events import ClockSet
from engine.record.history import History, KeptFinding
from engine.record.journal_copy import recorded_events
from engine.record.result import TableCollector


class KeptResults:
    """The results of one run; the same events a second time change nothing."""

    def __init__(self, run_id: str, most_rows: int = MOST_ROWS) -> None:
        self._run_id, self._most_rows = run_id, most_rows
        self._tables = TableCollector()
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
        elif isinstance(event, (ClockSet, HangJudged)) or (
            isinstance(event, Notified) and event.error
        ):
            rank = 0 if isinstance(event, Notified) else event.rank or 0
            level = "warning" if isinstance(event, Notified) else event.level
            finding = KeptFinding(kind=event.kind, level=level, rank=rank, text=event.text)
            self._keep(finding, history)
        if self._size > self._most_rows:
            return
        place = self._tables.feed(event)
        if place is not None and isinstance(event, TableRead):
            self._keep_table(place, event.first_row, history)

    def _keep_table(self, place: int, first: int, history: History) -> None:
        """Store the table, with its rows from `first` on."""
        table = self._tables.table(place, first)
        history.keep_table(self._run_id, place, table, first)
        before = self._rows.get(place, -1)
        self._rows[place] = first + len(table.rows)
        self._size += self._rows[place] - before
        if self._size > self._most_rows:
            text = f"the run's tables have more than {self._most_rows:,} rows: the rest is not kept"
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
