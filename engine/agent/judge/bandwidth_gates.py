"""The gates of a run of nccl-tests, judged on the head: whether cases reach their bandwidths.

engine/plan/gates.py plans them. A gate is judged once, as soon as every repetition of its case has
a figure; gates that never got one are missed when the job ends by itself.
"""

from __future__ import annotations

from engine.agent.judge.findings import Level
from engine.agent.judge.tables import ReadTable
from engine.contract.head_events import GateJudged
from engine.contract.plan import Gate, Sweep
from engine.contract.table import Row

STAND_IN = "CPU stand-in: says nothing of a GPU"


class Gates:
    """The gates of one run; a missed one is of `fault_level`."""

    def __init__(self, sweep: Sweep, fault_level: Level) -> None:
        self._mark = f"; {STAND_IN}" if sweep.is_stand_in else ""
        self._open = list(sweep.gates)
        self._fault_level = fault_level
        self._figures: dict[tuple[int, int], float] = {}  # by case and size of a gate
        self._has_news = False

    def see(self, table: ReadTable) -> None:
        """Note the figures of a table's rows for the gates of its case."""
        for gate in self._open:
            if table.case in gate.cases:
                figure = _figure(table.rows, gate.size)
                if figure is not None:
                    self._figures[table.case, gate.size] = figure
                    self._has_news = True

    def new_verdicts(self) -> list[GateJudged]:
        """Return the verdicts of the gates that have all figures, each once."""
        if not self._has_news:
            return []
        self._has_news = False
        return self._close([gate for gate in self._open if None not in self._of(gate)])

    def final_verdicts(self) -> list[GateJudged]:
        """Return the verdicts of all other gates: those that lack figures are missed."""
        return self._close(list(self._open))

    def restore(self, verdict: GateJudged) -> None:
        """Take over a verdict of an earlier supervisor: its gate is not judged again."""
        self._open = [gate for gate in self._open if not _is_of(gate, verdict)]

    def _of(self, gate: Gate) -> list[float | None]:
        return [self._figures.get((case, gate.size)) for case in gate.cases]

    def _close(self, gates: list[Gate]) -> list[GateJudged]:
        self._open = [gate for gate in self._open if gate not in gates]
        return [self._judge(gate) for gate in gates]

    def _judge(self, gate: Gate) -> GateJudged:
        figures = sorted(figure for figure in self._of(gate) if figure is not None)
        repetitions = len(gate.cases)
        of = f" (median of {repetitions})" if repetitions > 1 else ""
        is_whole = len(figures) == repetitions
        busbw = _median(figures) if is_whole else None
        passed = busbw is not None and busbw >= gate.busbw
        measured = f"busbw {busbw:.2f} GB/s{of}" if is_whole else "not measured"
        text = (
            f"gate {'reached' if passed else 'missed'}: {gate.title}: {measured},"
            f" expected >= {gate.busbw:g} GB/s ({gate.source}){self._mark}"
        )
        return GateJudged(
            rank=0,
            level="proof" if passed else self._fault_level,
            text=text,
            cases=gate.cases,
            busbw=busbw,
            expected=gate.busbw,
            source=gate.source,
        )


def _is_of(gate: Gate, verdict: GateJudged) -> bool:
    return gate.cases == verdict.cases and f": {gate.title}: " in verdict.text


def _figure(rows: list[Row], size: int) -> float | None:
    """Return the bus bandwidth at a size, out-of-place if that was printed.

    A program rounds a size down to whole elements for every rank; the next smaller size is at most
    half as large.
    """
    figure = None
    for row in rows:
        half = row.out_of_place or row.in_place
        if size // 2 < row.size <= size and half is not None:
            figure = half.busbw
    return figure


def _median(figures: list[float]) -> float:
    middle = len(figures) // 2
    if len(figures) % 2:
        return figures[middle]
    return (figures[middle - 1] + figures[middle]) / 2
