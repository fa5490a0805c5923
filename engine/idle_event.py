"""The event of GPUs that are idle; engine/events.py has the others."""

from typing import Literal

from config.bounds import Rank, Time, Whole
from config.models import Value


class GpusIdle(Value):
    """The GPUs of the node have had no work for `seconds`; it comes once for each such stretch."""

    kind: Literal["gpus_idle"] = "gpus_idle"
    time: Time
    rank: Rank
    gpus: tuple[int, ...]
    seconds: Whole
