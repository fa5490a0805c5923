"""The result of a run, collected from its events."""

from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from config.models import Value
from engine.events import (
    Event,
    GateJudged,
    NetworkSeen,
    Output,
    OutputJudged,
    RunFinished,
    RunStarted,
)
from engine.lines import WholeLines

LAST_LINES = 20


class RunResult(Value):
    """The result of a run.

    `exit_code` is 0 for done, 130 for stopped, the job's own (128 + N for signal N) if the job
    failed, 124 if a time limit was reached, 125 if a node failed, and 1 if the ranks or the
    network were not as planned, data were wrong or a gate was missed. `last_lines` are those of the
    node that failed first, of both streams in order of arrival. `warnings` are findings that do not
    fail the run.
    """

    run_id: str
    status: Literal["done", "failed", "stopped"]
    exit_code: int
    first_failed_rank: int | None
    first_failed_node: str | None
    reason: str
    last_lines: tuple[str, ...]
    warnings: tuple[str, ...] = ()
    started: datetime
    ended: datetime


class ResultCollector:
    """A collector of a run's events that computes the result."""

    def __init__(self) -> None:
        self._lines = WholeLines()
        self._last: dict[int, deque[str]] = {}
        self._warnings: list[str] = []
        self._started: RunStarted | None = None
        self._finished: RunFinished | None = None

    def see(self, event: Event) -> None:
        """Add the event."""
        if isinstance(event, RunStarted):
            self._started = event
        elif isinstance(event, RunFinished):
            self._finished = event
        elif (
            isinstance(event, (NetworkSeen, OutputJudged, GateJudged)) and event.level == "warning"
        ):
            self._warnings.append(event.text)
        elif isinstance(event, Output):
            self._keep(self._lines.feed(event))

    def result(self) -> RunResult | None:
        """Return the result, or None as long as the run is not over."""
        if self._started is None or self._finished is None:
            return None
        self._keep(self._lines.rest())
        rank = self._finished.first_failed_rank
        names = {node.rank: node.name for node in self._started.nodes}
        return RunResult(
            run_id=self._started.run_id,
            status=self._finished.status,
            exit_code=self._finished.exit_code,
            first_failed_rank=rank,
            first_failed_node=None if rank is None else names[rank],
            reason=self._finished.reason,
            warnings=tuple(self._warnings),
            last_lines=() if rank is None else tuple(self._last.get(rank, ())),
            started=datetime.fromtimestamp(self._started.time, UTC),
            ended=datetime.fromtimestamp(self._finished.time, UTC),
        )

    def _keep(self, lines: Iterable[Output]) -> None:
        for line in lines:
            self._last.setdefault(line.rank, deque(maxlen=LAST_LINES)).append(line.text)
