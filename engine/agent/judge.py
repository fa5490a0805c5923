"""What a run's output says against it: of its network (proof.py), and of its numbers (numbers.py).

Faults of the network end a run at once. Wrong numbers are told at once, and fail it at its end: the
sizes that follow show how much is wrong.
"""

from __future__ import annotations

from dataclasses import replace
from typing import NamedTuple

from engine.agent.findings import Finding
from engine.agent.journal import Message
from engine.agent.numbers import Numbers
from engine.agent.pieces import Pieces
from engine.agent.proof import Proof
from engine.agent.states import WRONG_RUN, Verdict

PIPE = "gpuctl: in a pipe of "
"""How the line begins with which a job's script reports a part of a pipe that failed."""


class Heard(NamedTuple):
    """A finding, the `kind` of the event that tells it, and whether it ends the run at once."""

    kind: str
    finding: Finding
    ends_run: bool = False


class Judge:
    """Reads the output of one run; `plan` is its LaunchPlan as JSON data."""

    def __init__(self, plan: Message) -> None:
        self._proof, self._numbers = Proof(plan["network"], plan["nodes"]), Numbers(plan)
        self._pieces = Pieces()
        self._faults: list[Finding] = []
        self._pipes: set[str] = set()
        self._names = [node["name"] for node in plan["nodes"]]

    def hear(self, output: Message) -> list[Heard]:
        """Return what the event `output` shows, where it ends a line."""
        line = self._pieces.line(output)
        return [] if line is None else self._read(output["rank"], output["stream"], line)

    def read_json(self, rank: int, document: Message) -> list[Heard]:
        """Return what a document of nccl-tests shows, which the node `rank` brought back."""
        return self._of_numbers(self._numbers.add_json(rank, document))

    def end(self, verdict: Verdict) -> tuple[list[Heard], Verdict]:
        """Return what only the run's end shows, and the verdict with all that was found."""
        heard = [
            one
            for rank, stream, text in self._pieces.rest()
            for one in self._read(rank, stream, text)
        ]
        if verdict.status == "done":
            heard += _of_network(self._proof.at_end())
        faults = [one.finding for one in heard if one.kind == "network_seen"]
        faults = [one for one in faults if one.level == "fault"]
        heard += self._of_numbers(self._numbers.at_end())
        if verdict.status == "done" and faults:
            verdict = Verdict("failed", WRONG_RUN, faults[0].rank, faults[0].text)
        return heard, self._with_numbers(verdict)

    def _read(self, rank: int, stream: str, line: str) -> list[Heard]:
        heard = _of_network(self._proof.feed(rank, stream, line))
        heard += self._of_numbers(self._numbers.feed(rank, stream, line))
        if PIPE in line:
            text = f"{self._names[rank]}: {line[line.index(PIPE) :].removeprefix('gpuctl: ')}"
            if text not in self._pipes:  # every rank of a launcher reports it
                self._pipes.add(text)
                heard.append(Heard("output_judged", Finding("warning", rank, text)))
        return heard

    def _of_numbers(self, findings: list[Finding]) -> list[Heard]:
        self._faults += [one for one in findings if one.level == "fault"]
        return [Heard("output_judged", one) for one in findings]

    def _with_numbers(self, verdict: Verdict) -> Verdict:
        """Return the verdict, which no run passes whose numbers are wrong.

        What they show is the reason where the job ended by itself, and is added to any other.
        """
        faults = sorted(self._faults, key=self._numbers.gravity)
        if not faults:
            return verdict
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        first, gravity = faults[0], self._numbers.gravity(faults[0])
        if verdict.status == "done":
            return Verdict("failed", WRONG_RUN, first.rank, first.text + more)
        if not verdict.is_jobs_own or gravity > 1:
            return replace(verdict, reason=f"{verdict.reason}; {first.text}{more}")
        code = WRONG_RUN if gravity == 0 else verdict.exit_code
        reason = f"{first.text}{more}; {verdict.reason}"
        return Verdict("failed", code, first.rank, reason, is_jobs_own=True)


def _of_network(findings: list[Finding]) -> list[Heard]:
    return [Heard("network_seen", one, one.level == "fault") for one in findings]
