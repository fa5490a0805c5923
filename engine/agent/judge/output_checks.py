"""The judge of a run's output.

It judges the network (rdma_check.py), the numbers of nccl-tests, and the gates of its cases.

A fault of the network ends the run at once. Wrong numbers are reported at once but fail the run at
its end, because the following sizes show how much is wrong. The exit status is not enough: a job
that pipes into `tee` ends with the status of `tee`.

engine/plan/cases.py plans the gates. A gate is judged once, as soon as every repetition of its case
has a figure; gates that never got one are missed when the job ends by itself.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.agent.journal.journal_file import Message
from engine.agent.journal.lines import Line, WholeLines
from engine.agent.judge.failure_patterns import Clues
from engine.agent.judge.failures import Finding, Level, hosts_of
from engine.agent.judge.rdma_check import Proof
from engine.agent.judge.tables import ReadTable, TableReader, TestFailure, read_json
from engine.contract.event import NodeEvent
from engine.contract.head_events import GateJudged, NetworkSeen, OutputJudged
from engine.contract.plan import Gate, LaunchPlan, Sweep
from engine.contract.table import Row, Timing
from engine.contract.verdict import WRONG_RUN, Verdict
from engine.contract.worker_events import Output

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


WRONG = "wrong data: "


class Numbers:
    """A reader of a run's output.

    A fault fails the run. With `verify: warn` it is a warning; with `off` nothing is checked.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self._verify = plan.network.verify
        self._names = [node.name for node in plan.nodes]
        self._hosts = hosts_of(plan.nodes)
        self.reader = TableReader(plan.programs)
        sweep = plan.sweep or Sweep(cases=())
        self._cases = len(sweep.cases)
        self.gates = Gates(sweep, self.fault_level)
        self._reported: set[tuple[object, ...]] = set()
        self._failed_tests: set[Finding] = set()

    def reads(self, rank: int, stream: str, text: str) -> bool:
        """Return whether a line of the text may be of nccl-tests or NCCL."""
        return self.reader.reads(rank, stream, text)

    def feed(self, rank: int, stream: str, text: str, time: float = 0.0) -> list[Finding]:
        """Return new findings from the line, which node `rank` printed: wrong data, failed tests.

        The run goes on, because the following sizes show how much is wrong. `time` is the line's.
        """
        failures = len(self.reader.failures)
        tables = len(self.reader.tables)
        table = self.reader.feed(rank, stream, text, time)
        findings = [self._failed(rank, failure) for failure in self.reader.failures[failures:]]
        if table is not None:
            self.gates.see(table)
            findings += self._wrong(table)
        if len(self.reader.tables) > tables:
            findings += self._close(rank)
        return self._new(findings)

    def severity(self, fault: Finding) -> int:
        """Return 0 for wrong data, 1 for a failed test, 2 for any other fault."""
        if fault.text.startswith(WRONG):
            return 0
        return 1 if fault in self._failed_tests else 2

    def add_json(self, rank: int, document: Message, case: int = 0) -> list[Finding]:
        """Return new findings from the JSON of a case's program of nccl-tests on node `rank`."""
        try:
            document_table = read_json(document, rank, case)
        except (KeyError, TypeError, ValueError, IndexError, OverflowError):  # of a later version
            return []
        table = self.reader.merge(document_table)
        self.gates.see(table)
        return self._new(self._wrong(table))

    def restore(self, finding: Finding) -> None:
        """Take over a finding of an earlier supervisor: it is not made again."""
        self._reported.add(finding)
        if finding.text.startswith(f"{self._names[finding.rank]}: Test "):
            self._failed_tests.add(finding)

    def final_findings(self) -> list[Finding]:
        """Return new findings at the end of the run: incomplete tables, unreadable rows."""
        return self._new(
            [finding for table in self.reader.tables for finding in self._ended(table)]
        )

    def _close(self, rank: int) -> list[Finding]:
        """Check the node's earlier tables; after that they may be released."""
        findings = []
        before = (
            earlier for earlier in reversed(self.reader.tables[:-1]) if earlier.printed_on == rank
        )
        for table in before:
            if table.is_judged:
                break
            findings += self._ended(table)
            table.is_judged = True
            self.reader.changed[table.number] = table
        return findings

    def _ended(self, table: ReadTable) -> list[Finding]:
        where, findings = self._where(table), []
        if table.is_judged:
            return []
        if table.copies > 1:
            text = (
                f"{table.copies} tables of {where} were printed at once: each of these programs"
                " tested alone, without the others; build nccl-tests with MPI=1"
            )
            findings.append(Finding("warning", table.printed_on, text))
        if table.ended_at is not None:
            last = max(table.sizes() or [0])
            text = (
                f"{where} is incomplete: it ended at {size_text(table.ended_at)} of"
                f" {size_text(last)}"
            )
            findings.append(self._fault(table.printed_on, text))
        if table.lost:
            rows = "1 row" if table.lost == 1 else f"{table.lost} rows"
            text = f"{where}: {rows} could not be read, other output went through them"
            findings.append(Finding("warning", table.printed_on, text))
        return findings

    def _new(self, findings: list[Finding]) -> list[Finding]:
        if self._verify == "off":
            return []
        new = [finding for finding in findings if finding not in self._reported]
        self._reported.update(new)
        return new

    def _wrong(self, table: ReadTable) -> list[Finding]:
        findings = []
        for row in table.rows[-1:] if not table.has_footer else table.rows:
            for half, name in ((row.out_of_place, "out-of-place"), (row.in_place, "in-place")):
                if self._is_wrong(table, row, half):
                    assert half is not None
                    text = (
                        f"{WRONG}{self._where(table)} has {_values(half.wrong)} at"
                        f" {size_text(row.size)}, {name} ({_test(row)})"
                    )
                    findings.append(self._fault(table.printed_on, text))
        if table.out_of_bounds and not findings:
            text = (
                f"{WRONG}{self._where(table)} ended with `Out of bounds values :"
                f" {table.out_of_bounds} FAILED`"
            )
            findings.append(self._fault(table.printed_on, text))
        if table.too_slow:
            text = (
                f"{self._where(table)}: its average bus bandwidth of {table.average_busbw:g} GB/s"
                " is below NCCL_TESTS_MIN_BW"
            )
            findings.append(self._fault(table.printed_on, text))
        return findings

    def _is_wrong(self, table: ReadTable, row: Row, half: Timing | None) -> bool:
        if half is None or not half.wrong or not table.is_checked:
            return False
        # A row joined from torn pieces counts only if the footer agrees.
        return not (row in table.joined and table.out_of_bounds in (None, 0))

    def _failed(self, rank: int, failure: TestFailure) -> Finding:
        about = self._hosts.get(failure.host, self._hosts.get(failure.host.partition(".")[0], rank))
        fault = self._fault(about, f"{self._names[about]}: {failure.text}")
        self._failed_tests.add(fault)
        return fault

    def _where(self, table: ReadTable) -> str:
        where = f"{table.collective} on {self._names[table.printed_on]}"
        return f"{where}, case {table.case} of {self._cases}" if self._cases > 1 else where

    def _fault(self, rank: int, text: str) -> Finding:
        return Finding(self.fault_level, rank, text)

    @property
    def fault_level(self) -> Level:
        """The level of a fault: `warning` with `verify: warn`."""
        return "warning" if self._verify == "warn" else "fault"


def size_text(size: int) -> str:
    """Return the size, as in nccl-tests' flags if that is exact: `64M (67108864 bytes)`."""
    for unit, bytes_ in (("G", 1 << 30), ("M", 1 << 20), ("K", 1 << 10)):
        if size and size % bytes_ == 0:
            return f"{size // bytes_}{unit} ({size} bytes)"
    return f"{size} bytes"


def _values(count: int | None) -> str:
    return "1 wrong value" if count == 1 else f"{count} wrong values"


def _test(row: Row) -> str:
    of = [row.dtype]
    if row.redop not in (None, "none"):
        of.append(str(row.redop))
    if row.root not in (None, -1):
        of.append(f"root {row.root}")
    return ", ".join(of)


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
