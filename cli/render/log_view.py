"""The log of a run: its lines of output, as the options ask for them."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING

from cli.render.lines import LineView, dropped_lines, node_name
from cli.render.log_filter import LineFilter, Tail
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    OutputDropped,
    RunFinished,
    RunQueued,
    RunStarted,
)
from engine.contract.worker_events import Output
from operations import run_events

if TYPE_CHECKING:
    from cli.output import Output as Out
    from operations.run_events import Line


class LogView:
    """Prints the wanted lines of a run's events."""

    def __init__(
        self, lines: LineFilter, out: "Out", nodes: int, folds: bool, tail: int | None
    ) -> None:
        self._filter, self._out = lines, out
        self._names = [f"node{rank}" for rank in range(nodes)]  # until the run's first event
        self._view = LineView(out, self._names, folds)
        self._lines = run_events.WholeLines()
        show = self._record if out.as_json else self._view.show
        self.is_complete = False
        """Whether the run's end is among the events."""
        self._tail = None if tail is None else Tail(tail, show)
        self._show = show if self._tail is None else self._tail.add

    def event(self, event: Event) -> None:
        """Print the lines that the event completes; InputError for a node that the run has not."""
        if isinstance(event, (RunQueued, RunStarted, AttemptStarted)) and event.nodes:
            self._names = [node.name for node in event.nodes]
            self._view.use_names(self._names)
            if not isinstance(event, AttemptStarted):
                self._filter.check_nodes(self._names)
        elif isinstance(event, Output) and self._has(event.rank, event.time):
            self._print(self._lines.feed(event))
            if self._tail is None and self._filter.takes_all_of_a_node:
                self._view.show_state(event.rank, self._lines.state(event.rank, event.stream))
        elif isinstance(event, RunFinished):
            self.is_complete = True
        elif isinstance(event, OutputDropped):
            self._print(self._lines.rest())
            lines = dropped_lines(event)
            self._show([line for line in lines if self._has(line.rank, line.time)])

    def end(self) -> None:
        """Print what is not complete."""
        self._print(self._lines.rest())
        if self._tail is not None:
            self._tail.flush()
        self._view.rest()
        self._view.clear()

    def _print(self, lines: Sequence["Line"]) -> None:
        if not self._filter.takes_all_of_a_node:
            lines = [line for line in lines if self._filter.matches(line)]
        self._show(lines)

    def _has(self, rank: int, moment: float) -> bool:
        return self._filter.has(node_name(self._names, rank), moment)

    def _record(self, lines: Sequence["Line"]) -> None:
        for line in lines:
            document = {**line._asdict(), "node": node_name(self._names, line.rank)}
            self._out.record(json.dumps(document, ensure_ascii=False))
