"""The result of a run, collected from its events."""

from collections import deque
from collections.abc import Iterable
from dataclasses import replace
from datetime import UTC, datetime
from typing import Literal, TypeGuard

from config.models import Value
from engine.agent.journal.lines import Line, WholeLines
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    FollowedFailure,
    GateJudged,
    HangJudged,
    NetworkSeen,
    Notified,
    OutputJudged,
    RunFinished,
    RunNode,
    TableRead,
)
from engine.contract.table import Facts, Row
from engine.contract.worker_events import ClockSet, Output
from engine.record.events import FirstEvent

LAST_LINES = 20


class RunResult(Value):
    """The result of a run.

    `exit_code` is 0 for done, 130 for stopped, the job's own (128 + N for signal N) if the job
    failed, 124 if a time limit was reached, 125 if a node failed, and 1 if the ranks or the
    network were not as planned, data were wrong or a gate was missed. `last_lines` are those of the
    node that failed first, of both streams in order of arrival. `warnings` are findings that do not
    fail the run. `followed` are the nodes that failed after the first. `attempts` is the number of
    attempts that were made. A run that left the queue has `started` from the time when it was
    queued last.
    """

    run_id: str
    status: Literal["done", "failed", "stopped"]
    exit_code: int
    first_failed_rank: int | None
    first_failed_node: str | None
    reason: str
    last_lines: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    followed: tuple[FollowedFailure, ...] = ()
    attempts: int = 1
    started: datetime
    ended: datetime


_Warning = NetworkSeen | OutputJudged | GateJudged | HangJudged | Notified | ClockSet


def _is_warning(event: Event) -> TypeGuard[_Warning]:
    if isinstance(event, Notified):
        return bool(event.error)
    kinds = (NetworkSeen, OutputJudged, GateJudged, HangJudged, ClockSet)
    return isinstance(event, kinds) and event.level == "warning"


class ResultCollector:
    """A collector of a run's events that computes the result."""

    def __init__(self) -> None:
        self._lines = WholeLines()
        self._last: dict[int, deque[str]] = {}
        self._warnings: list[str] = []
        self._attempts = 1
        self._began: FirstEvent | None = None
        self._nodes: tuple[RunNode, ...] = ()
        self._finished: RunFinished | None = None

    def see(self, event: Event) -> None:
        """Add the event."""
        if isinstance(event, FirstEvent):
            self._began, self._nodes = event, event.nodes
        elif isinstance(event, RunFinished):
            self._finished = event
        elif isinstance(event, AttemptStarted):
            self._attempts = event.number
            self._nodes = event.nodes or self._nodes
            self._lines, self._last = WholeLines(), {}
        elif _is_warning(event):
            self._warnings.append(event.text)
        elif isinstance(event, Output):
            self._keep(self._lines.feed(self._end_of(event)))

    def result(self) -> RunResult | None:
        """Return the result, or None as long as the run is not over."""
        if self._began is None or self._finished is None:
            return None
        self._keep(self._lines.rest())
        rank = self._finished.first_failed_rank
        names = {node.rank: node.name for node in self._nodes}
        return RunResult(
            run_id=self._began.run_id,
            status=self._finished.status,
            exit_code=self._finished.exit_code,
            first_failed_rank=rank,
            first_failed_node=None if rank is None else names.get(rank),
            reason=self._finished.reason,
            warnings=tuple(self._warnings),
            followed=self._finished.followed,
            last_lines=() if rank is None else self._last_lines(rank),
            attempts=self._attempts,
            started=datetime.fromtimestamp(self._began.time, UTC),
            ended=datetime.fromtimestamp(self._finished.time, UTC),
        )

    def _end_of(self, event: Output) -> Output:
        """Return the event, of many whole lines only with the last."""
        if event.text.count("\n") < LAST_LINES or not self._lines.is_whole(event):
            return event
        last = event.text.rsplit("\n", LAST_LINES)[1:]
        return replace(event, text="\n".join(last))

    def _last_lines(self, rank: int) -> tuple[str, ...]:
        """Return the node's last lines; if it printed none, those of the master."""
        return tuple(self._last.get(rank) or self._last.get(0) or ())

    def _keep(self, lines: Iterable[Line]) -> None:
        for line in lines:
            self._last.setdefault(line.rank, deque(maxlen=LAST_LINES)).append(line.text)


class Table(Value):
    """One table of a run."""

    facts: Facts
    rows: tuple[Row, ...]


class TableCollector:
    """A collector of the tables in a run's events, in the order in which they began."""

    def __init__(self) -> None:
        self._tables: list[tuple[Facts, list[Row]]] = []
        self._numbers: dict[int, int] = {}
        """The places of the attempt's tables, by their numbers."""

    def feed(self, event: Event) -> int | None:
        """Return the place of the table that `event` adds to or changes; None if there is none."""
        if isinstance(event, AttemptStarted):
            self._numbers = {}
        elif isinstance(event, TableRead):
            return self._read(event)
        return None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables so far."""
        return tuple(self.table(place) for place in range(len(self._tables)))

    def table(self, place: int, first: int = 0) -> Table:
        """Return the table at this place so far, with its rows from `first` on."""
        facts, rows = self._tables[place]
        return Table(facts=facts, rows=tuple(rows[first:]))

    def _read(self, read: TableRead) -> int | None:
        place = self._numbers.get(read.table)
        if place is not None:
            before, rows = self._tables[place]
        elif read.facts is not None:
            place = self._numbers[read.table] = len(self._tables)
            before, rows = read.facts, []
            self._tables.append((before, rows))
        else:  # its beginning was left out
            return None
        ranks = (*before.ranks[: read.first_rank], *read.ranks)
        facts = replace(read.facts or before, ranks=ranks, ended_at=read.ended_at)
        rows[read.first_row :] = read.rows
        self._tables[place] = facts, rows
        return place
