"""The bound of a run's events on this machine: a job is root on the head that sends them.

Output has the journal's own budget, which removes the oldest. All other events stay, in the
journal's copy, in the history and as files of evidence. So they are bounded here, for the client
that follows a run and for everybody who reads a copy.
"""

from typing import NamedTuple

from engine.contract.event import Event
from engine.contract.head_events import (
    Evidence,
    NotificationsEnded,
    OutputDropped,
    OutputJudged,
    RunFinished,
)
from engine.contract.worker_events import Output


class Bound(NamedTuple):
    """The most events of a run, and the most bytes of their lines."""

    number: int
    size: int


EVENTS = Bound(1_000_000, 256 << 20)
"""All events but output. A run of 16,000 ranks has about 6 MiB of them in an attempt."""
EVIDENCE = Bound(1_000, 32 << 20)
"""Events that become files. A head examines 8 lost nodes of a run, each with 8 files of 16 KiB."""


class EventBudget:
    """What the events of one run have used of their bounds so far."""

    def __init__(self, events: Bound = EVENTS, evidence: Bound = EVIDENCE) -> None:
        self._most, self._most_evidence = events, evidence
        self._events, self._evidence = Bound(0, 0), Bound(0, 0)
        self.time = 0.0
        """The time of the last event."""
        self._has_warned = False

    def admits(self, line: str | bytes, event: Event | None) -> bool:
        """Return whether the line is kept, and count it; `event` is None for an unknown kind.

        The run's end and that of its notifications are always kept: following ends with them. What
        an earlier client has left out (`JournalCopy.leave_out`) is not.
        """
        if event is not None:
            self.time = event.time
        if isinstance(event, (RunFinished, NotificationsEnded)):
            return True
        if isinstance(event, OutputDropped) and not event.ranks:
            return False
        if isinstance(event, Output):
            return True  # the journal's own budget removes it
        if isinstance(event, Evidence):
            self._evidence = _sum(self._evidence, line)
            if _is_over(self._evidence, self._most_evidence):
                return False
        self._events = _sum(self._events, line)
        return not _is_over(self._events, self._most)

    def warning(self) -> OutputJudged | None:
        """Return the warning that events are left out; None if it was returned already."""
        if self._has_warned:
            return None
        self._has_warned = True
        events, evidence = self._most, self._most_evidence
        return OutputJudged(
            time=self.time,
            rank=0,
            level="warning",
            text=f"the head sent more than {events.size >> 20} MiB or {events.number:,} events in"
            f" addition to output, or more than {evidence.size >> 20} MiB or"
            f" {evidence.number:,} files of evidence: the rest is left out;"
            " a job is root on the head: check what ran there",
        )


def _sum(used: Bound, line: str | bytes) -> Bound:
    return Bound(used.number + 1, used.size + len(line))


def _is_over(used: Bound, bound: Bound) -> bool:
    return used.number > bound.number or used.size > bound.size
