"""Events about what was read of tables: each part of a table is in one of them."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace

from engine.agent.judge.tables import ReadTable, TableReader
from engine.contract.event import Event
from engine.contract.head_events import GateJudged, OutputJudged, TableRead
from engine.contract.plan import LaunchPlan
from engine.contract.table import MOST_ROWS, Facts, GateVerdict

MOST_RANKS = 1_000_000
"""The ranks of all tables of an attempt that are kept, of about 110 bytes each."""


class TableEvents:
    """What was recorded of an attempt's tables."""

    def __init__(
        self,
        plan: LaunchPlan,
        reader: TableReader,
        most_rows: int = MOST_ROWS,
        most_ranks: int = MOST_RANKS,
    ) -> None:
        self._reader = reader
        self._most_rows, self._most_ranks = most_rows, most_ranks
        self._cases = {case.number: case for case in (plan.sweep.cases if plan.sweep else ())}
        self._gates: dict[int, tuple[GateVerdict, ...]] = {}
        self._facts: dict[int, Facts] = {}
        self._ends: dict[int, int | None] = {}
        self._size, self._ranks = 0, 0
        self._has_warned = False

    def changes(self, heard: Iterable[Event] = ()) -> list[Event]:
        """Return the events about the tables that have changed.

        `heard` are the findings since the last call: a table has the verdicts of its gates.
        """
        changed = self._reader.changed
        for event in heard:
            if isinstance(event, GateJudged):
                verdict = GateVerdict(event.level == "proof", event.text)
                for case in event.cases:
                    self._gates[case] = (*self._gates.get(case, ()), verdict)
                of_cases = (table for table in self._reader.tables if table.case in event.cases)
                changed.update((table.number, table) for table in of_cases)
        if not changed:
            return []
        events = [event for table in changed.values() for event in self._changes_of(table)]
        for table in changed.values():
            if table.is_judged:
                table.release()
        changed.clear()
        return events

    def final_changes(self, heard: Iterable[Event]) -> list[Event]:
        """Return the events about all that is not recorded at the end of the output."""
        tables = (table for table in self._reader.tables if not table.is_restored)
        self._reader.changed.update((table.number, table) for table in tables)
        return self.changes(heard)

    def restore(self, read: TableRead) -> None:
        """Take over what an earlier supervisor has recorded of a table."""
        self._reader.restore(read)
        self._size += len(read.rows) + (read.table not in self._ends)
        if read.facts is not None:
            self._facts[read.table] = read.facts
        self._ends[read.table] = read.ended_at

    def _changes_of(self, table: ReadTable) -> list[Event]:
        if self._size > self._most_rows:
            return []
        number, ended_at = table.number, table.ended_at
        case, gates = self._cases.get(table.case), self._gates.get(table.case, ())
        facts = replace(table.facts(), case=case, gates=gates)
        is_known = self._facts.get(number) == facts
        rows = table.rows[table.sent_rows - table.row_count :] if table.has_new_rows else []
        ranks = table.ranks[table.sent_ranks - table.rank_count :] if table.has_new_ranks else []
        if is_known and not rows and not ranks and self._ends.get(number) == ended_at:
            return []
        self._size += len(rows) + (number not in self._facts)
        self._ranks += len(ranks)
        self._facts[number], self._ends[number] = facts, ended_at
        event = TableRead(
            table=number,
            case=table.case,
            facts=None if is_known else facts,
            first_rank=table.sent_ranks,
            ranks=() if self._ranks > self._most_ranks else tuple(ranks),
            first_row=table.sent_rows,
            rows=tuple(rows),
            ended_at=ended_at,
        )
        table.sent_rows, table.sent_ranks = table.row_count, table.rank_count
        return (
            [event] if self._ranks <= self._most_ranks else [event, *self._warn(table.printed_on)]
        )

    def _warn(self, rank: int) -> list[Event]:
        """Return the warning that ranks are left out, once."""
        if self._has_warned:
            return []
        self._has_warned = True
        text = f"the run's tables have more than {self._most_ranks:,} ranks: the rest is not kept"
        return [OutputJudged(rank, "warning", text)]
