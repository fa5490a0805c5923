"""The progress of a run of nccl-tests: which case runs, and about how long the rest takes."""

from __future__ import annotations

from engine.agent.journal.line_joiner import Pieces
from engine.agent.judge.tables import CASE
from engine.contract.events import CaseStarted, Output
from engine.contract.plan import LaunchPlan


class CaseProgress:
    """A reader of the lines that announce cases."""

    def __init__(self, plan: LaunchPlan) -> None:
        cases = plan.sweep.cases if plan.sweep else ()
        self._titles = {case.number: case.title for case in cases}
        self._pieces = Pieces()
        self._begun: float | None = None

    def hear(self, output: Output) -> CaseStarted | None:
        """Return the last case that `output` announces, with the seconds left; else None.

        The estimate is the average time of the cases that have ended, for each of the others.
        """
        if not self._titles or (output.rank, output.stream) != (0, "stdout"):
            return None
        announced = [found for line in self._pieces.lines(output) if (found := CASE.match(line))]
        number = int(announced[-1][1]) if announced else 0
        if number not in self._titles:
            return None
        time = output.time
        if self._begun is None:
            self._begun = time
        of, ended = len(self._titles), number - 1
        left = (time - self._begun) / ended * (of - ended) if ended else None
        left_s = None if left is None else round(left, 1)
        return CaseStarted(number, of, self._titles[number], left_s)
