"""The reader of a run's output: what the supervisor adds to the journal because of it."""

from __future__ import annotations

from dataclasses import replace

from engine.agent.judge.failures import explain
from engine.agent.judge.output_checks import Judge, judged
from engine.agent.judge.tables import TableEvents
from engine.contract.event import Event, change
from engine.contract.head_events import (
    CaseStarted,
    FollowedFailure,
    GateJudged,
    NetworkSeen,
    OutputDropped,
    OutputJudged,
    TableRead,
)
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NodeExamined, Output, RankStarted, TableWritten

DERIVED = (CaseStarted, NetworkSeen, OutputJudged, GateJudged, TableRead)


class OutputReader:
    """The only reader of an attempt's output: its findings, its tables and its progress.

    After an earlier supervisor, give it every event of the journal (`replay`) before anything else.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self._judge, self._progress = Judge(plan), CaseProgress(plan)
        self._tables = TableEvents(plan, self._judge.tables)
        self.unrecorded: list[Event] = []
        """Events that follow from the replayed output and are not in the journal."""
        self._recorded_at_end = 0
        self._names = [node.name for node in plan.nodes]
        self._examined: list[NodeExamined] = []  # nodes at the end of their jobs, as they came
        self.followed: tuple[FollowedFailure, ...] = ()
        """The failures after the first, from `end` on."""
        self._has_all_output = True

    def read(self, event: Event) -> list[Event]:
        """Return the event as it is recorded, and then those that follow from it, in order.

        Output that it reads is `judged`: the next supervisor does not read the rest.
        """
        if isinstance(event, Output):
            if not self._judge.reads(event):
                self._skip(event)
                return [event]
            event = change(event, judged=True)
        return [event, *self._follow(event)]

    def _skip(self, event: Output) -> None:
        self._judge.clues.skip(event.rank, event.text.count("\n") + 1)

    def _follow(self, event: Event) -> list[Event]:
        """Return the events that follow from this one."""
        if isinstance(event, Output):
            heard = self._judge.hear(event)
            case = self._progress.start(self._judge.tables.case, event.time)
            return [*([case] if case else []), *heard, *self._tables.changes(heard)]
        if isinstance(event, TableWritten):
            heard = self._judge.read_json(event.rank, event.document, event.case)
            return [*heard, *self._tables.changes(heard)]
        if isinstance(event, RankStarted):
            self._judge.clues.place(event.process, event.rank, event.size)
        elif isinstance(event, NodeExamined):
            self._examined.append(event)
        return []

    def replay(self, event: Event) -> None:
        """Read an event that an earlier supervisor recorded."""
        if isinstance(event, Output) and not event.judged:
            self._skip(event)
        elif isinstance(event, OutputDropped):  # its findings are in the journal, see `restore`
            self._has_all_output = False
        elif isinstance(event, OutputJudged) and event.malformed:  # it does not follow from output
            return
        elif not isinstance(event, DERIVED):
            self.unrecorded += self._follow(event)
        else:
            self._replay_derived(event)

    def _replay_derived(self, event: Event) -> None:
        if isinstance(event, TableRead) and not self._has_all_output:
            self._tables.restore(event)
        if self.unrecorded:
            del self.unrecorded[0]
        elif self._has_all_output:
            self._recorded_at_end += 1
        elif isinstance(event, (NetworkSeen, OutputJudged, GateJudged)):
            self._judge.restore(event)

    def end(self, verdict: Verdict) -> tuple[list[Event], Verdict]:
        """Return the events that follow at the run's end, and the verdict in words."""
        clues = self._judge.clues
        examined = [
            replace(node, facts=(*node.facts, *clues.facts(node.rank))) if node.exit_code else node
            for node in self._examined
        ]
        collective = clues.collective(self._names)
        verdict, self.followed, others = explain(verdict, self._names, examined, collective)
        heard, verdict = self._judge.end(verdict)
        events = [*heard, *judged(others), *self._tables.final_changes(heard)]
        return events[self._recorded_at_end :], verdict


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
