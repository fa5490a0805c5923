"""Checks of the numbers that nccl-tests prints: a run with wrong data never succeeds.

The exit status is not enough: a job that pipes into `tee` ends with the status of `tee`.
"""

from __future__ import annotations

from engine.agent.journal.journal import Message
from engine.agent.judge.bandwidth_gates import Gates
from engine.agent.judge.findings import Finding, Level, hosts_of
from engine.agent.judge.table_json import read
from engine.agent.judge.tables import ReadTable, TableReader, TestFailure
from engine.contract.plan import LaunchPlan, Sweep
from engine.contract.table import Row, Timing

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
            document_table = read(document, rank, case)
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
