"""The event of a clock that was set; engine/events.py has the others."""

from typing import Literal

from config.bounds import Rank, Time
from config.models import Value


class ClockSet(Value):
    """The clock of a node was set by `seconds` while the run went on; `text` says it in one line.

    `rank` is None for the head of a run that does not use it.
    """

    kind: Literal["clock_set"] = "clock_set"
    time: Time
    level: Literal["warning"] = "warning"
    rank: Rank | None
    seconds: float
    text: str
