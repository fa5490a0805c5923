"""Time that does not depend on how somebody sets a machine's clock.

Durations are measured with `steady`. Times in a run's events are those of a RunClock. A StepWatch
notices that the machine's clock was set.
"""

from __future__ import annotations

import time

STEP_S = 1.0
"""Seconds: a clock that jumps by this or more was set. NTP corrects less without a jump."""
_READINGS = 3  # this process may be interrupted between the readings of two clocks


def steady() -> float:
    """Return the seconds since this machine's start, which nobody sets (CLOCK_BOOTTIME)."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)


def time_of_day(seconds: float) -> str:
    """Return a time since the epoch as `12:03:44 UTC`."""
    return time.strftime("%H:%M:%S UTC", time.gmtime(seconds))


class RunClock:
    """The clock of a run on one machine: the time of day at its beginning, and steady from then on.

    So a run's events have the order in which they happened, and the seconds between them are right,
    however the machine's clock is set meanwhile. `offset` is that of an earlier process of the run.
    """

    def __init__(self, offset: float | None = None) -> None:
        self.offset = _offset() if offset is None else offset

    def now(self) -> float:
        """Return the time in seconds since the epoch, in milliseconds."""
        return round(self.offset + steady(), 3)


class StepWatch:
    """A watch for steps of this machine's clock."""

    def __init__(self) -> None:
        self._offset = _offset()

    def look(self) -> float:
        """Return by how many seconds the clock was set since the last call, 0 if it was not."""
        before, self._offset = self._offset, _offset()
        step = self._offset - before
        return step if abs(step) >= STEP_S else 0.0


def step_text(name: str, seconds: float) -> str:
    """Return the step of a node's clock in words."""
    how = "set back" if seconds < 0 else "set forward"
    return f"{name}'s clock was {how} by {abs(seconds):.0f} s"


def _offset() -> float:
    """Return the time of day minus the steady time."""
    readings = []
    for _ in range(_READINGS):
        before, wall, after = steady(), time.time(), steady()
        readings.append((after - before, wall - before))
    return min(readings)[1]
