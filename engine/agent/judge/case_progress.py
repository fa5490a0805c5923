"""The progress of a run of nccl-tests: which case runs, and about how long the rest takes."""

from __future__ import annotations

from engine.contract.head_events import CaseStarted
from engine.contract.plan import LaunchPlan


class CaseProgress:
    """The case that runs, and the time of the first one."""

    def __init__(self, plan: LaunchPlan) -> None:
        cases = plan.sweep.cases if plan.sweep else ()
        self._titles = {case.number: case.title for case in cases}
        self._number = 0
        self._begun: float | None = None

    def start(self, number: int, time: float) -> CaseStarted | None:
        """Return the event of the case that runs at this time, once, with the seconds left.

        The estimate is the average time of the cases that have ended, for each of the others.
        """
        if number == self._number or number not in self._titles:
            return None
        self._number = number
        if self._begun is None:
            self._begun = time
        of, ended = len(self._titles), number - 1
        left = (time - self._begun) / ended * (of - ended) if ended else None
        left_s = None if left is None else round(left, 1)
        return CaseStarted(number, of, self._titles[number], left_s)
