"""Ask again and again, until there is an answer or a time is over."""

import random
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TypeVar

from config.errors import GpuctlError

T = TypeVar("T")


@dataclass(frozen=True)
class Timeouts:
    """For how long to ask, and the pauses between two questions, in seconds.

    Pauses begin with `pause_s` and double up to `longest_pause_s`, which is `pause_s` by default.
    Each is longer or shorter by up to `jitter`, a part of it: many clients then do not keep step.
    """

    most_s: float
    pause_s: float
    longest_pause_s: float = 0.0
    jitter: float = 0.0


def poll(
    ask: Callable[[], T | None],
    timeouts: Timeouts,
    report: Callable[[float], None] = lambda _: None,
) -> T | None:
    """Return the first answer of `ask` that is not None; None if there is none in time.

    It asks at once, and a last time when the time is over. `report` gets each pause before it
    begins.
    """
    end, pause = time.monotonic() + timeouts.most_s, timeouts.pause_s
    while (answer := ask()) is None:
        left = end - time.monotonic()
        if left <= 0:
            return None
        varied = pause * random.uniform(1 - timeouts.jitter, 1 + timeouts.jitter)  # noqa: S311
        report(min(varied, left))
        time.sleep(min(varied, left))
        pause = min(2 * pause, max(timeouts.longest_pause_s, timeouts.pause_s))
    return answer


def retry(
    action: Callable[[], T], is_passing: Callable[[GpuctlError], bool], timeouts: Timeouts
) -> T:
    """Return the result of `action`; repeat it after errors that are passing.

    Raise another error at once, and a passing one when the time is over.
    """
    errors: list[GpuctlError] = []

    def attempt() -> tuple[T] | None:
        try:
            return (action(),)
        except GpuctlError as error:
            if not is_passing(error):
                raise
            errors.append(error)
            return None

    done = poll(attempt, timeouts)
    if done is None:
        raise errors[-1]
    return done[0]
