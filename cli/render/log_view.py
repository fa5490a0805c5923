"""The log of a run as `gpuctl logs` shows it: some nodes or ranks, a time, a pattern, the last."""

import asyncio
import json
import re
import time
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cli.render import lines
from cli.render.lines import LineView, dropped_lines, node_name
from cli.terminal import COLOUR
from config import duration
from config.errors import InputError
from config.folded_names import expand, fold
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    OutputDropped,
    RunFinished,
    RunQueued,
    RunStarted,
)
from engine.contract.worker_events import Output
from operations import run_client

if TYPE_CHECKING:
    from cli.output import Output as Out
    from operations.run_client import Line


_RANKS = re.compile(r"(\d{1,6})(?:-(\d{1,6}))?", re.ASCII)
QUIET_S = 0.5
"""A followed run that sends nothing for this time has sent what it printed before."""


@dataclass(frozen=True)
class LineFilter:
    """The conditions on a line: of `nodes`, of `ranks`, a time from `since` on, a `pattern`.

    A line without a tag counts as of the rank that is its node's number in the run.
    """

    nodes: frozenset[str] | None = None
    ranks: frozenset[int] | None = None
    since: float = 0.0
    pattern: re.Pattern[str] | None = None

    @property
    def takes_all_of_a_node(self) -> bool:
        """Return whether every line of a node is wanted, whatever is in it."""
        return self.ranks is None and self.pattern is None

    def has(self, node: str, moment: float) -> bool:
        """Return whether output of that node and time is wanted."""
        return moment >= self.since and (self.nodes is None or node in self.nodes)

    def matches(self, line: "Line") -> bool:
        """Return whether the line is of the ranks, and its text without colours has the pattern.

        The text is with the tag or without it.
        """
        rank, text = lines.split_tag(line.text)
        if self.ranks is not None and (line.rank if rank is None else rank) not in self.ranks:
            return False
        texts = (text,) if rank is None else (text, line.text)
        return self.pattern is None or any(
            self.pattern.search(COLOUR.sub("", part)) for part in texts
        )

    def check_nodes(self, names: Sequence[str]) -> None:
        """Raise InputError if the run, which has the nodes `names`, does not have all `nodes`."""
        if missing := (self.nodes or frozenset()).difference(names):
            raise InputError(
                f"--node: the run has no {fold(missing)}", f"its nodes are {fold(names)}"
            )


def line_filter(
    nodes: str | None, ranks: str | None, since: str | None, pattern: str | None
) -> LineFilter:
    """Return the options as a value; InputError names a wrong one."""
    return LineFilter(
        None if nodes is None else frozenset(expand(nodes)),
        None if ranks is None else parse_ranks(ranks),
        0.0 if since is None else time.time() - _age(since),
        None if pattern is None else _pattern(pattern),
    )


def parse_ranks(text: str) -> frozenset[int]:
    """Return the ranks of `0,8-15`."""
    ranks: set[int] = set()
    for term in text.split(","):
        match = _RANKS.fullmatch(term.strip())
        first, last = (int(match[1]), int(match[2] or match[1])) if match else (1, 0)
        if first > last:
            hint = "write numbers and ranges: --rank 0,8-15"
            raise InputError(f"--rank {text}: `{term}` is no rank", hint)
        ranks.update(range(first, last + 1))
    return frozenset(ranks)


def _age(text: str) -> int:
    return duration.given_duration(text, "--since", "10m or 2h")


def _pattern(text: str) -> re.Pattern[str]:
    try:
        return re.compile(text)
    except re.error as error:
        hint = "write a regular expression of Python, in quotes"
        raise InputError(f"--grep {text}: {error}", hint) from None


class Tail:
    """The last `count` lines of what a run has printed, and then every line that follows.

    `show` gets them. A run that is followed has printed everything once a line is from after the
    command's start, or once nothing comes for QUIET_S seconds.
    """

    def __init__(self, count: int, show: Callable[[Sequence["Line"]], None]) -> None:
        self._show = show
        self._last: deque[Line] | None = deque(maxlen=count)
        self._begun, self._heard = time.time(), 0.0
        self._timer: asyncio.TimerHandle | None = None

    def add(self, lines: Sequence["Line"]) -> None:
        """Keep the lines, or pass them on."""
        self._heard = time.monotonic()
        if self._last is None:
            self._show(lines)
            return
        self._last.extend(lines)
        if lines and lines[-1].time > self._begun:
            self.flush()
        elif self._timer is None:
            self._timer = _later(self._flush_if_quiet)

    def flush(self) -> None:
        """Show the last lines, and from now on every line."""
        if self._last is not None:
            last, self._last = tuple(self._last), None
            self._show(last)

    def _flush_if_quiet(self) -> None:
        self._timer = None
        if time.monotonic() - self._heard >= QUIET_S:
            self.flush()
        elif self._last is not None:
            self._timer = _later(self._flush_if_quiet)


def _later(call: Callable[[], None]) -> asyncio.TimerHandle | None:
    """Call later, if an event loop runs; the end of the run flushes too."""
    try:
        return asyncio.get_running_loop().call_later(QUIET_S, call)
    except RuntimeError:
        return None


class LogView:
    """Prints the wanted lines of a run's events."""

    def __init__(
        self, lines: LineFilter, out: "Out", nodes: int, folds: bool, tail: int | None
    ) -> None:
        self._filter, self._out = lines, out
        self._names = [f"node{rank}" for rank in range(nodes)]  # until the run's first event
        self._view = LineView(out, self._names, folds)
        self._lines = run_client.WholeLines()
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
