"""Runs and their results, kept in SQLite after their fleets are gone."""

import json
import sqlite3
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from types import TracebackType
from typing import Literal, Self

from config.errors import InputError, RunError
from config.models import Value
from engine.nccl_tests import Row
from engine.plan import LaunchPlan
from engine.result import RunResult

SCHEMA_VERSION = 1
_SCHEMA = """
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, name TEXT NOT NULL, cluster TEXT NOT NULL, nodes INTEGER NOT NULL,
  on_stop TEXT NOT NULL, status TEXT NOT NULL, exit_code INTEGER, first_failed_rank INTEGER,
  reason TEXT NOT NULL, started TEXT NOT NULL, ended TEXT, cost_usd REAL
);
CREATE TABLE rows (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, number INTEGER NOT NULL,
  rank INTEGER NOT NULL, size INTEGER NOT NULL, count INTEGER NOT NULL, dtype TEXT NOT NULL,
  redop TEXT, root INTEGER, time_us REAL NOT NULL, algbw REAL NOT NULL, busbw REAL NOT NULL,
  wrong INTEGER, in_place TEXT NOT NULL, PRIMARY KEY (run_id, number)
);
"""


class RunRecord(Value):
    """A run as the history knows it: `running` until its end was seen."""

    run_id: str
    name: str
    cluster: str
    nodes: int
    on_stop: Literal["keep", "destroy"]
    status: Literal["running", "done", "failed", "stopped"]
    exit_code: int | None
    first_failed_rank: int | None
    reason: str
    started: datetime
    ended: datetime | None
    cost_usd: float | None

    @property
    def is_over(self) -> bool:
        """Whether its end was seen."""
        return self.status != "running"


class History:
    """The database `runs.sqlite` in a target's folder for runs; a context manager."""

    def __init__(self, runs: Path) -> None:
        runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        self._path = runs / "runs.sqlite"
        with self._errors():
            # A second gpuctl that writes is waited for, not failed on.
            self._database = sqlite3.connect(self._path, timeout=30, isolation_level=None)
            self._database.row_factory = sqlite3.Row
            self._database.execute("PRAGMA foreign_keys = ON")
            self._make_schema()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        at: TracebackType | None,
    ) -> None:
        self.close()

    def close(self) -> None:
        """The database is closed."""
        self._database.close()

    def begin(self, plan: LaunchPlan) -> None:
        """The run is known, as running; a run that is known already stays as it is."""
        self._write(
            "INSERT OR IGNORE INTO runs VALUES (?, ?, ?, ?, ?, 'running', NULL, NULL, '', ?,"
            " NULL, NULL)",
            [
                (
                    *(plan.run_id, plan.name, plan.cluster, len(plan.nodes), plan.on_stop),
                    datetime.now(UTC).isoformat(),
                )
            ],
        )

    def drop(self, run_id: str) -> None:
        """The run, which never began, is not known any more."""
        self._write("DELETE FROM runs WHERE run_id = ?", [(run_id,)])

    def finish(self, result: RunResult, cost_usd: float | None = None) -> None:
        """The run's end is known. A cost that is known already is not forgotten."""
        self._write(
            "UPDATE runs SET status = ?, exit_code = ?, first_failed_rank = ?, reason = ?,"
            " started = ?, ended = ?, cost_usd = coalesce(?, cost_usd) WHERE run_id = ?",
            [
                (
                    *(result.status, result.exit_code, result.first_failed_rank, result.reason),
                    *(result.started.isoformat(), result.ended.isoformat(), cost_usd),
                    result.run_id,
                )
            ],
        )

    def lose(self, run_id: str, reason: str) -> None:
        """The run failed without telling how: its supervisor is gone."""
        self._write(
            "UPDATE runs SET status = 'failed', exit_code = 125, reason = ?, ended = ?"
            " WHERE run_id = ? AND status = 'running'",
            [(reason, datetime.now(UTC).isoformat(), run_id)],
        )

    def set_cost(self, run_id: str, cost_usd: float) -> None:
        """What the run's cluster cost from its launch to its end is known."""
        self._write("UPDATE runs SET cost_usd = ? WHERE run_id = ?", [(cost_usd, run_id)])

    def add_rows(self, run_id: str, first: int, rows: Iterable[Row]) -> None:
        """Rows `first`, `first` + 1, … of the run are kept; those that are there stay."""
        self._write(
            "INSERT OR IGNORE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    *(run_id, first + index, row.rank, row.size, row.count, row.dtype),
                    *(row.redop, row.root, row.time_us, row.algbw, row.busbw, row.wrong),
                    row.in_place.model_dump_json(),
                )
                for index, row in enumerate(rows)
            ],
        )

    def runs(self) -> tuple[RunRecord, ...]:
        """All runs, newest first."""
        with self._errors():
            found = self._database.execute("SELECT * FROM runs ORDER BY started DESC").fetchall()
        return tuple(RunRecord.model_validate(dict(row)) for row in found)

    def rows(self, run_id: str) -> tuple[Row, ...]:
        """The run's rows in the order in which they were printed."""
        with self._errors():
            found = self._database.execute(
                "SELECT * FROM rows WHERE run_id = ? ORDER BY number", (run_id,)
            ).fetchall()
        return tuple(
            Row.model_validate({**row, "in_place": json.loads(row["in_place"])})
            for row in map(dict, found)
        )

    def find(self, run_id_or_name: str) -> RunRecord:
        """The run with this id, or the newest with this name; InputError names those there are."""
        runs = self.runs()
        for record in runs:
            if record.run_id == run_id_or_name:
                return record
        for record in runs:
            if record.name == run_id_or_name:
                return record
        newest = ", ".join(record.run_id for record in runs[:5])
        raise InputError(
            f"there is no run {run_id_or_name}",
            f"the newest are: {newest}" if newest else "no run was started yet",
        )

    def _make_schema(self) -> None:
        version = self._database.execute("PRAGMA user_version").fetchone()[0]
        if version > SCHEMA_VERSION:
            raise RunError(
                f"{self._path} has version {version}, this gpuctl knows {SCHEMA_VERSION}",
                "use the newer gpuctl that wrote it",
            )
        if version == 0:
            with self._transaction():
                # Another process may have made it while this one waited for the lock.
                if self._database.execute("PRAGMA user_version").fetchone()[0] == 0:
                    for statement in _SCHEMA.split(";"):
                        self._database.execute(statement)
                    self._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")

    def _write(self, statement: str, values: list[tuple[object, ...]]) -> None:
        with self._errors(), self._transaction():
            self._database.executemany(statement, values)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """All or nothing, and one writer at a time."""
        self._database.execute("BEGIN IMMEDIATE")
        try:
            yield
        except BaseException:
            self._database.execute("ROLLBACK")
            raise
        self._database.execute("COMMIT")

    @contextmanager
    def _errors(self) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise RunError(
                f"{self._path} cannot be used: {error}",
                "move it away; gpuctl then starts a new history",
            ) from error
