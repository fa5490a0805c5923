"""The judge of a run's output.

It judges the network (rdma_check.py), numbers (nccl_correctness.py), gates (bandwidth_gates.py).

A fault of the network ends the run at once. Wrong numbers are reported at once but fail the run at
its end, because the following sizes show how much is wrong.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.agent.journal.journal import Message
from engine.agent.journal.lines import Line, WholeLines
from engine.agent.judge.failure_patterns import Clues
from engine.agent.judge.findings import Finding
from engine.agent.judge.nccl_correctness import Numbers
from engine.agent.judge.rdma_check import Proof
from engine.agent.judge.tables import TableReader
from engine.contract.event import NodeEvent
from engine.contract.head_events import GateJudged, NetworkSeen, OutputJudged
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import WRONG_RUN, Verdict
from engine.contract.worker_events import Output

PIPE = "gpuctl: in a pipe of "
"""The beginning of the line in which a job's script reports a failed part of a pipe."""


class Judge:
    """The judge of one run's output."""

    def __init__(self, plan: LaunchPlan) -> None:
        self._proof, self._numbers = Proof(plan.network, plan.nodes), Numbers(plan)
        self._lines = WholeLines()
        self._faults: list[Finding] = []
        self._pipes: set[str] = set()
        self._names = [node.name for node in plan.nodes]
        self.clues = Clues({node.private_ip: node.name for node in plan.nodes})
        """The parts of the output that explain a failure."""

    def hear(self, output: Output) -> list[NodeEvent]:
        """Return the findings from the lines that the event `output` ends."""
        if not self.reads(output):
            self.clues.skip(output.rank, output.text.count("\n") + 1)
            return []
        return [finding for line in self._lines.feed(output) for finding in self._read(line)]

    def reads(self, output: Output) -> bool:
        """Return whether `hear` may find something in the event `output`; mostly it cannot."""
        rank, stream, text = output.rank, output.stream, output.text
        return not self._lines.is_whole(output) or self._reads(rank, stream, text)

    @property
    def tables(self) -> TableReader:
        """The reader of the output's tables."""
        return self._numbers.reader

    def read_json(self, rank: int, document: Message, case: int = 0) -> list[NodeEvent]:
        """Return the findings from a JSON document of a case of nccl-tests from the node `rank`."""
        heard = self._of_numbers(self._numbers.add_json(rank, document, case))
        return heard + self._of_gates(self._numbers.gates.new_verdicts())

    def restore(self, event: NetworkSeen | OutputJudged | GateJudged) -> None:
        """Take over what an earlier supervisor found in output that was removed since."""
        if isinstance(event, NetworkSeen):
            self._proof.restore(Finding(event.level, event.rank, event.text))
            return
        if isinstance(event, GateJudged):
            self._numbers.gates.restore(event)
            self._of_gates([event])
            return
        finding = Finding(event.level, event.rank, event.text)
        self._numbers.restore(finding)
        self._pipes.add(finding.text)
        if finding.level == "fault":
            self._faults.append(finding)

    def end(self, verdict: Verdict) -> tuple[list[NodeEvent], Verdict]:
        """Return the findings at the run's end, and the verdict changed by all findings."""
        heard = [finding for line in self._lines.rest() for finding in self._read(line)]
        if verdict.status == "done":
            heard += _of_network(self._proof.final_findings())
        heard += _of_network(self._proof.observations())
        faults = [
            event for event in heard if isinstance(event, NetworkSeen) and event.level == "fault"
        ]
        heard += self._of_numbers(self._numbers.final_findings())
        if verdict.status == "done":  # otherwise it is no news that cases were not measured
            heard += self._of_gates(self._numbers.gates.final_verdicts())
        if verdict.status == "done" and faults:
            fault = faults[0]
            verdict = Verdict("failed", WRONG_RUN, fault.rank, fault.text, cause="network")
        return heard, self._with_numbers(verdict)

    def _reads(self, rank: int, stream: str, text: str) -> bool:
        """Return whether `_read` may find something in a line of the text; mostly it cannot."""
        return (
            self._numbers.reads(rank, stream, text)
            or self.clues.reads(text)
            or self.clues.awaits(rank)
            or "/GDRDMA" in text
            or PIPE in text
        )

    def _read(self, printed: Line) -> list[NodeEvent]:
        time, rank, stream, line = printed
        if not self._reads(rank, stream, line):
            self.clues.skip(rank, 1)
            return []
        self.clues.feed(rank, line)
        heard = _of_network(self._proof.feed(rank, line))
        heard += self._of_numbers(self._numbers.feed(rank, stream, line, time))
        heard += self._of_gates(self._numbers.gates.new_verdicts())
        if PIPE in line:
            text = f"{self._names[rank]}: {line[line.index(PIPE) :].removeprefix('gpuctl: ')}"
            if text not in self._pipes:  # every rank of a launcher reports it
                self._pipes.add(text)
                heard.append(OutputJudged(rank, "warning", text))
        return heard

    def _of_numbers(self, findings: list[Finding]) -> list[NodeEvent]:
        self._faults += [finding for finding in findings if finding.level == "fault"]
        return judged(findings)

    def _of_gates(self, verdicts: list[GateJudged]) -> list[GateJudged]:
        for verdict in verdicts:
            if verdict.level == "fault":
                self._faults.append(Finding(verdict.level, 0, verdict.text))
        return verdicts

    def _with_numbers(self, verdict: Verdict) -> Verdict:
        """Return the verdict; a run with wrong numbers fails.

        They are the reason if the job ended by itself; otherwise they are added to the reason.
        """
        faults = sorted(self._faults, key=self._numbers.severity)
        if not faults:
            return verdict
        more = f" (and {len(faults) - 1} more)" if len(faults) > 1 else ""
        first, severity = faults[0], self._numbers.severity(faults[0])
        if verdict.status == "done":
            return Verdict("failed", WRONG_RUN, first.rank, first.text + more)
        if not verdict.is_jobs_own or severity > 1:
            return replace(verdict, reason=f"{verdict.reason}; {first.text}{more}")
        code = WRONG_RUN if severity == 0 else verdict.exit_code
        reason = f"{first.text}{more}; {verdict.reason}"
        return Verdict("failed", code, first.rank, reason, is_jobs_own=True)


def _of_network(findings: list[Finding]) -> list[NodeEvent]:
    return [NetworkSeen(finding.rank, finding.level, finding.text) for finding in findings]


def judged(findings: Iterable[Finding]) -> list[NodeEvent]:
    """Return the events of findings about output, of which none has the level `proof`."""
    return [
        OutputJudged(finding.rank, finding.level, finding.text)
        for finding in findings
        if finding.level != "proof"
    ]
