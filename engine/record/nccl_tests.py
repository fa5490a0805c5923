"""The tables of nccl-tests of a run, collected from its events for the history and for users.

engine/agent/judge/tables.py reads the lines: client and supervisor use the same reader.
"""

from datetime import UTC, datetime

from pydantic import Field

from config.models import Value
from engine.agent.judge.table_json import merge, read
from engine.agent.judge.tables import ReadTable, TableReader
from engine.contract.events import (
    AttemptStarted,
    Event,
    GateJudged,
    Output,
    RunFinished,
    RunStarted,
    TableWritten,
)
from engine.contract.plan import Case
from engine.contract.table import Row, TableRank
from engine.record.lines import Line, WholeLines


class GateVerdict(Value):
    """The verdict of a gate on a bandwidth of a table; `text` has both figures and the source."""

    passed: bool
    text: str


class Facts(Value):
    """The facts of a table besides its rows; `rank` is that of the node that printed it.

    Unknown versions are empty, and unknown flags are missing in `flags` (min_bytes, max_bytes,
    step, factor, warmup, iterations, aggregated, checks, graph, unalign, threads, gpus).
    `case` is None for a table that no run of `type: nccl-tests` printed, `gates` are the verdicts
    of its gates. `out_of_bounds` and `average_busbw` are None without a footer. `ended_at` is the
    size at which an incomplete table ends, `lost` the number of rows that were printed but could
    not be read.
    """

    rank: int
    collective: str
    case: Case | None = None
    gates: tuple[GateVerdict, ...] = ()
    nccl_tests: str = ""
    nccl: str = ""
    plugin: str = ""
    driver: str = ""
    flags: dict[str, int] = Field(default={})
    ranks: tuple[TableRank, ...] = ()
    is_checked: bool = True
    out_of_bounds: int | None = None
    average_busbw: float | None = None
    ended_at: int | None = None
    lost: int = 0
    from_json: bool = False
    begun: datetime | None = None


class Table(Value):
    """One table of a run."""

    facts: Facts
    rows: tuple[Row, ...]


class TableParser:
    """A parser of the tables in a run's events, in the order in which they began."""

    def __init__(self) -> None:
        self._lines = WholeLines()
        self._reader = TableReader()
        self._earlier: list[ReadTable] = []  # tables of attempts that have failed
        self._programs: tuple[str, ...] = ()
        self._cases: dict[int, Case] = {}
        self._gates: dict[int, tuple[GateVerdict, ...]] = {}

    def feed(self, event: Event) -> tuple[int, ...]:
        """Return the numbers of the tables that `event` adds to or changes."""
        if isinstance(event, RunStarted):
            self._programs = event.programs
            self._reader = TableReader(event.programs)
            self._cases = {}
            for case in event.sweep.cases if event.sweep else ():
                self._cases[case.number] = Case(**vars(case))
        elif isinstance(event, Output):
            has_whole_lines = self._lines.is_whole(event)
            if has_whole_lines and not self._reader.reads(event.rank, event.stream, event.text):
                return ()
            return self._read(self._lines.feed(event))
        elif isinstance(event, RunFinished):
            self._read(self._lines.rest())
            return tuple(range(len(self._earlier), len(self._all)))
        elif isinstance(event, AttemptStarted):
            self._earlier += self._reader.tables
            self._reader, self._lines = TableReader(self._programs), WholeLines()
            self._gates = {}
        elif isinstance(event, TableWritten):
            return self._read_json(event)
        elif isinstance(event, GateJudged):
            return self._add_verdict(event)
        return ()

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables so far."""
        return tuple(self.table(number) for number in range(len(self._all)))

    @property
    def _all(self) -> list[ReadTable]:
        """Return the tables of all attempts."""
        return [*self._earlier, *self._reader.tables]

    def table(self, number: int, first: int = 0) -> Table:
        """Return the table with this number so far, with its rows from `first` on."""
        table = self._all[number]
        facts = _facts(table).model_copy(
            update={"case": self._cases.get(table.case), "gates": self._gates.get(table.case, ())}
        )
        return Table(facts=facts, rows=tuple(table.rows[first:]))

    def _read(self, lines: tuple[Line, ...]) -> tuple[int, ...]:
        changed = [
            self._reader.feed(line.rank, line.stream, line.text, line.time) for line in lines
        ]
        tables = [table for table in changed if table is not None]
        return tuple(sorted({self._number(table) for table in tables}))

    def _read_json(self, event: TableWritten) -> tuple[int, ...]:
        try:
            table = read(event.document, event.rank, event.case)
        except (KeyError, TypeError, ValueError, IndexError):  # of a later nccl-tests
            return ()
        return (self._number(merge(self._reader.tables, table)),)

    def _add_verdict(self, event: GateJudged) -> tuple[int, ...]:
        verdict = GateVerdict(passed=event.level == "proof", text=event.text)
        for case in event.cases:
            self._gates[case] = (*self._gates.get(case, ()), verdict)
        return tuple(
            self._number(table) for table in self._reader.tables if table.case in event.cases
        )

    def _number(self, table: ReadTable) -> int:
        return next(n for n, one in enumerate(self._all) if one is table)


def _facts(table: ReadTable) -> Facts:
    return Facts(
        rank=table.printed_on,
        collective=table.collective,
        nccl_tests=table.nccl_tests,
        nccl=table.nccl,
        plugin=table.plugin,
        driver=table.driver,
        flags=table.flags,
        ranks=tuple(table.ranks),
        is_checked=table.is_checked,
        out_of_bounds=table.out_of_bounds,
        average_busbw=table.average_busbw,
        ended_at=table.ended_at,
        lost=table.lost,
        from_json=table.has_json,
        begun=datetime.fromtimestamp(table.begun, UTC) if table.begun else None,
    )
