"""How a run ended."""

from collections import deque
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import Literal

from config.models import Value
from engine.events import Event, NetworkSeen, Output, OutputJudged, RunFinished, RunStarted
from engine.lines import WholeLines

LAST_LINES = 20


class RunResult(Value):
    """How a run ended.

    `exit_code` is the job's own where the job failed (128 + N for signal N), 0 when done, 130
    when stopped, 124 when a time limit was reached, 125 when a node failed, 1 when other ranks
    started than were planned, or on another network, and when data were wrong. `last_lines` are
    those of the node that failed first, of both streams as they came. `warnings` are what
    output showed that fails no run.
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


class ResultOf:
    """Collects a run's events into its result."""

    def __init__(self) -> None:
        self._lines = WholeLines()
        self._last: dict[int, deque[str]] = {}
        self._warnings: list[str] = []
        self._started: RunStarted | None = None
        self._finished: RunFinished | None = None

    def see(self, event: Event) -> None:
        """The event counts."""
        if isinstance(event, RunStarted):
            self._started = event
        elif isinstance(event, RunFinished):
            self._finished = event
        elif isinstance(event, (NetworkSeen, OutputJudged)) and event.level == "warning":
            self._warnings.append(event.text)
        elif isinstance(event, Output):
            self._keep(self._lines.feed(event))

    def result(self) -> RunResult | None:
        """The result, or None as long as the run is not over."""
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
