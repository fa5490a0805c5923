"""The tables of nccl-tests of a run, collected from its events for the history and for users."""

from dataclasses import replace

from config.models import Value
from engine.contract.event import Event
from engine.contract.head_events import AttemptStarted, TableRead
from engine.contract.table import Facts, Row


class Table(Value):
    """One table of a run."""

    facts: Facts
    rows: tuple[Row, ...]


class TableCollector:
    """A collector of the tables in a run's events, in the order in which they began."""

    def __init__(self) -> None:
        self._tables: list[tuple[Facts, list[Row]]] = []
        self._numbers: dict[int, int] = {}
        """The places of the attempt's tables, by their numbers."""

    def feed(self, event: Event) -> int | None:
        """Return the place of the table that `event` adds to or changes; None if there is none."""
        if isinstance(event, AttemptStarted):
            self._numbers = {}
        elif isinstance(event, TableRead):
            return self._read(event)
        return None

    @property
    def tables(self) -> tuple[Table, ...]:
        """The tables so far."""
        return tuple(self.table(place) for place in range(len(self._tables)))

    def table(self, place: int, first: int = 0) -> Table:
        """Return the table at this place so far, with its rows from `first` on."""
        facts, rows = self._tables[place]
        return Table(facts=facts, rows=tuple(rows[first:]))

    def _read(self, read: TableRead) -> int | None:
        place = self._numbers.get(read.table)
        if place is not None:
            before, rows = self._tables[place]
        elif read.facts is not None:
            place = self._numbers[read.table] = len(self._tables)
            before, rows = read.facts, []
            self._tables.append((before, rows))
        else:  # its beginning was left out
            return None
        ranks = (*before.ranks[: read.first_rank], *read.ranks)
        facts = replace(read.facts or before, ranks=ranks, ended_at=read.ended_at)
        rows[read.first_row :] = read.rows
        self._tables[place] = facts, rows
        return place
