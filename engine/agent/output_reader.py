"""The reader of a run's output: what the supervisor adds to the journal because of it."""

from __future__ import annotations

from engine.agent.case_progress import CaseProgress
from engine.agent.failures import Examined, Followed, explain
from engine.agent.journal import Message
from engine.agent.journal_file import DROPPED
from engine.agent.judge import Heard, Judge
from engine.agent.states import Verdict
from engine.contract.plan import LaunchPlan

NOT_JUDGED = "output_not_judged"
"""The kind of a line for output that nothing follows from: `rank`, `sequence`, number of `lines`.

The journal has the output itself.
"""
DERIVED = ("case_started", "network_seen", "output_judged", "gate_judged")


class OutputReader:
    """The judge and the progress of a run.

    After an earlier supervisor, give it every line of the journal (`replay`) before anything else.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self._judge, self._progress = Judge(plan), CaseProgress(plan)
        self.unrecorded: list[Message] = []
        """Lines that follow from the replayed output and are not in the journal."""
        self._recorded_at_end = 0
        self._names = [node.name for node in plan.nodes]
        self._examined: list[Message] = []  # nodes at the end of their jobs, in order of arrival
        self.followed: tuple[Followed, ...] = ()
        """The failures after the first, from `end` on."""
        self._has_all_output = True

    def read(self, line: Message) -> list[Message]:
        """Return the lines that follow from this line of the journal, in order.

        Output that it reads gets the field `judged`: the next supervisor does not read the rest
        (resuming.py).
        """
        if line["kind"] == "output":
            if "judged" not in line and not self._judge.reads(line):
                self._judge.clues.skip(line["rank"], line["text"].count("\n") + 1)
                return []
            line["judged"] = True
            case = self._progress.hear(line)
            cases = [{"kind": "case_started", **case}] if case else []
            return cases + _lines(self._judge.hear(line))
        if line["kind"] == "table_written":
            return _lines(self._judge.read_json(line["rank"], line["document"], line["case"]))
        if line["kind"] == "rank_started":
            self._judge.clues.place(line["process"], line["rank"], line["size"])
        elif line["kind"] == "node_examined":
            self._examined.append(line)
        return []

    def replay(self, line: Message) -> None:
        """Read a line that an earlier supervisor recorded."""
        if line["kind"] == NOT_JUDGED:
            self._judge.clues.skip(line["rank"], line["lines"])
            return
        if line["kind"] == DROPPED:  # its findings are in the journal
            self._has_all_output = False
        if line["kind"] not in DERIVED:
            self.unrecorded += self.read(line)
        elif self.unrecorded:
            del self.unrecorded[0]
        elif self._has_all_output:
            self._recorded_at_end += 1

    def end(self, verdict: Verdict) -> tuple[list[Message], Verdict]:
        """Return the lines that follow at the run's end, and the verdict in words."""
        clues = self._judge.clues
        examined = [
            Examined(
                *(one["rank"], one["exit_code"], one["is_own_end"]),
                facts=(*one["facts"], *(clues.facts(one["rank"]) if one["exit_code"] else ())),
            )
            for one in self._examined
        ]
        collective = clues.collective(self._names)
        verdict, self.followed, others = explain(verdict, self._names, examined, collective)
        heard, verdict = self._judge.end(verdict)
        heard += [Heard("output_judged", one) for one in others]
        return _lines(heard)[self._recorded_at_end :], verdict


def _lines(heard: list[Heard]) -> list[Message]:
    return [{"kind": one.kind, **one.finding._asdict(), **one.details} for one in heard]
