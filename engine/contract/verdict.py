"""The end of a run or an attempt, and the exit codes that gpuctl gives it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

Status = Literal["done", "failed", "stopped"]

ENDED_FROM_OUTSIDE = (128 + 15, 128 + 9)  # by SIGTERM or SIGKILL, as in a shutdown
TIMED_OUT = 124  # as timeout(1): a limit of the run file was reached
WRONG_RUN = 1  # the ranks or the network are not as planned, or data are wrong
NODE_FAILED = 125  # a node failed, not the job
STOPPED = 130  # as a shell reports Ctrl-C


@dataclass(frozen=True)
class Verdict:
    """The end of the run. The first verdict wins; only `done` may still turn into a failure.

    `is_jobs_own` means that the job ended by itself with a status other than 0. `cause` is one
    of those that a run file may retry (config/run/retry.py), else empty.
    """

    status: Status
    exit_code: int
    first_failed_rank: Optional[int]
    reason: str
    is_jobs_own: bool = False
    cause: str = ""


def exit_reason(name: str, code: int) -> str:
    """Return the reason of a run whose job failed by itself.

    engine/agent/judge/failures.py adds what it knows.
    """
    return f"{name} exited with {code}"


BUSY = 3
"""Of `start`: other runs have the nodes."""
NO_PLAN = 4
"""Of `supervise`: the head does not have the run's plan any more."""
REFUSED = 5
"""Of `move` and `drop`: the run does not wait."""
