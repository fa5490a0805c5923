"""The history of runs and their results, in SQLite; it outlives their clusters."""

import contextlib
import dataclasses
import errno
import json
import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import Literal, Self

from pydantic import AwareDatetime, TypeAdapter, ValidationError

from config.bounds import Dollars, ExitCode, Rank, Whole
from config.errors import InputError, RunError, StateError
from config.files import disk_error, is_access_error, path_below, unwritable
from config.foreign import first_mistake
from config.identifiers import ClusterName, InstanceId, RunId, RunName
from config.models import Value
from engine.contract.codec import to_json
from engine.contract.head_events import FollowedFailure, RunQueued
from engine.contract.plan import LaunchPlan
from engine.contract.table import Facts, Row, Timing
from engine.record.result import RunResult, Table
from engine.record.run_context import Setting
from engine.record.run_errors import KnownRun

SCHEMA_VERSION = 6

SCHEMA = """
CREATE TABLE runs (
  run_id TEXT PRIMARY KEY, name TEXT NOT NULL, cluster TEXT NOT NULL, nodes INTEGER NOT NULL,
  on_stop TEXT NOT NULL, status TEXT NOT NULL, exit_code INTEGER, first_failed_rank INTEGER,
  reason TEXT NOT NULL, started TEXT NOT NULL, ended TEXT, cost_usd REAL,
  attempts INTEGER NOT NULL DEFAULT 1, followed TEXT NOT NULL DEFAULT '[]',
  head_id TEXT NOT NULL DEFAULT ''
);
CREATE TABLE tables (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, number INTEGER NOT NULL,
  facts TEXT NOT NULL, PRIMARY KEY (run_id, number)
);
CREATE TABLE rows (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, in_table INTEGER NOT NULL,
  number INTEGER NOT NULL, size INTEGER NOT NULL, count INTEGER NOT NULL, dtype TEXT NOT NULL,
  redop TEXT, root INTEGER, out_of_place TEXT, in_place TEXT, at TEXT NOT NULL,
  PRIMARY KEY (run_id, in_table, number)
);
CREATE TABLE findings (
  run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE, number INTEGER NOT NULL,
  kind TEXT NOT NULL, level TEXT NOT NULL, rank INTEGER NOT NULL, text TEXT NOT NULL,
  PRIMARY KEY (run_id, number)
);
CREATE TABLE baselines (
  name TEXT PRIMARY KEY, run_id TEXT NOT NULL REFERENCES runs (run_id) ON DELETE CASCADE
);
CREATE TABLE settings (
  run_id TEXT PRIMARY KEY REFERENCES runs (run_id) ON DELETE CASCADE, setting TEXT NOT NULL
)
"""


_ENDING = (
    "status",
    "exit_code",
    "first_failed_rank",
    "reason",
    "started",
    "ended",
    "cost_usd",
    "attempts",
    "followed",
)
"""What the end of a run changes in its row."""

_FACTS = TypeAdapter(Facts)

_NO_ROOM = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR, sqlite3.SQLITE_CANTOPEN)


class RunRecord(Value):
    """A run in the history; `running` until a client has seen its end.

    It is `queued` first if it may wait, until a client has seen its start. `attempts` is the number
    of attempts that began, and `followed` are the failures after the first. `head_id` is the
    instance of its head, empty if that is not known.
    """

    run_id: RunId
    name: RunName
    cluster: ClusterName
    nodes: Whole
    on_stop: Literal["keep", "destroy"]
    status: Literal["queued", "running", "done", "failed", "stopped"]
    exit_code: ExitCode | None
    first_failed_rank: Rank | None
    reason: str
    started: AwareDatetime
    ended: AwareDatetime | None
    cost_usd: Dollars | None
    attempts: Whole = 1
    followed: tuple[FollowedFailure, ...] = ()
    head_id: InstanceId | Literal[""] = ""

    @property
    def is_over(self) -> bool:
        """Return whether a client has seen the run's end."""
        return self.status not in ("queued", "running")

    @property
    def is_lost(self) -> bool:
        """Return whether the run has no result, so that no journal has its end (`mark_lost`)."""
        return self.exit_code == 125 and self.first_failed_rank is None


class KeptFinding(Value):
    """A finding about the network (`network_seen`), the numbers (`output_judged`), or a node."""

    kind: str
    level: str
    rank: int
    text: str


class History:
    """The database `runs.sqlite` in a target's folder for runs; a context manager.

    Where this user may not write, it is a copy in memory of what can be read. `begin` of a new run
    and `keep_baseline` then raise StateError; other changes are only seen through this object.
    """

    def __init__(self, runs: Path) -> None:
        self._path = path_below(runs, "runs.sqlite")
        self._refusal = _refusal(self._path)
        with self._errors():
            self._database = self._connect()
            self._database.row_factory = sqlite3.Row
            self._database.execute("PRAGMA foreign_keys = ON")
            self._make_schema()

    def _connect(self) -> sqlite3.Connection:
        # Wait for another gpuctl that writes, instead of failing.
        if self._refusal is None:
            return sqlite3.connect(self._path, timeout=30, isolation_level=None)
        copy = sqlite3.connect(":memory:", isolation_level=None)
        if os.access(self._path, os.R_OK):
            stored = sqlite3.connect(f"{self._path.as_uri()}?mode=ro", uri=True)
            with contextlib.closing(stored):
                stored.backup(copy)
        return copy

    def check_writable(self) -> None:
        """Raise StateError if this user may not write the history."""
        if self._refusal is not None:
            raise self._refusal

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self._database.close()

    def begin(self, known: KnownRun, setting: Setting | None = None, head_id: str = "") -> None:
        """Add the run as running, or as queued if it may wait, with its setting and its head.

        Leave a run that exists unchanged. One that another machine started has no setting.
        """
        if isinstance(known, LaunchPlan):
            self.check_writable()
            is_queued, began = known.queue, datetime.now(UTC)
        else:
            is_queued = isinstance(known, RunQueued)
            began = datetime.fromtimestamp(known.time, UTC)
        self._write(
            "INSERT OR IGNORE INTO runs (run_id, name, cluster, nodes, on_stop, status, reason,"
            " started, head_id) VALUES (?, ?, ?, ?, ?, ?, '', ?, ?)",
            known.run_id,
            known.name,
            known.cluster,
            len(known.nodes),
            known.on_stop,
            "queued" if is_queued else "running",
            began.isoformat(),
            head_id,
        )
        if setting is not None:
            self.keep_setting(known.run_id, setting)

    def adopt(self, run: RunRecord) -> None:
        """Add a run of another machine, or its end to one that is not over here.

        What this machine knows of a run stays: its cluster, its name, what is to follow its end.
        """
        values = run.model_dump(mode="json")
        values["followed"] = json.dumps(values["followed"])
        names = ", ".join(values)
        changes = ", ".join(f"{name} = excluded.{name}" for name in _ENDING)
        self._write(
            f"INSERT INTO runs ({names}) VALUES ({', '.join('?' * len(values))})"  # noqa: S608
            f" ON CONFLICT (run_id) DO UPDATE SET {changes}"
            " WHERE runs.status IN ('queued', 'running')"
            " AND runs.cluster = excluded.cluster AND runs.name = excluded.name",
            *values.values(),
        )

    def drop(self, run_id: str) -> None:
        """Delete a run that never started."""
        self._write("DELETE FROM runs WHERE run_id = ?", run_id)

    def finish(self, result: RunResult, cost_usd: float | None = None) -> None:
        """Store the run's result, and the cost if it is given."""
        self._write(
            "UPDATE runs SET status = ?, exit_code = ?, first_failed_rank = ?, reason = ?,"
            " started = ?, ended = ?, cost_usd = coalesce(?, cost_usd), attempts = ?, followed = ?"
            " WHERE run_id = ?",
            result.status,
            result.exit_code,
            result.first_failed_rank,
            result.reason,
            result.started.isoformat(),
            result.ended.isoformat(),
            cost_usd,
            result.attempts,
            json.dumps(to_json(result.followed)),
            result.run_id,
        )

    def mark_started(self, run_id: str) -> None:
        """Mark a queued run as running."""
        self._write(
            "UPDATE runs SET status = 'running' WHERE run_id = ? AND status = 'queued'", run_id
        )

    def mark_attempt(self, run_id: str, number: int) -> None:
        """Store that an attempt of the run has begun."""
        self._write("UPDATE runs SET attempts = ? WHERE run_id = ?", number, run_id)

    def mark_lost(self, run_id: str, reason: str) -> None:
        """Mark a run that is not over as failed with exit code 125: its supervisor is gone."""
        self._write(
            "UPDATE runs SET status = 'failed', exit_code = 125, reason = ?, ended = ?"
            " WHERE run_id = ? AND status IN ('queued', 'running')",
            reason,
            datetime.now(UTC).isoformat(),
            run_id,
        )

    def set_cost(self, run_id: str, cost_usd: float) -> None:
        """Store what the run's cluster cost from its launch to its end, in US dollars."""
        self._write("UPDATE runs SET cost_usd = ? WHERE run_id = ?", cost_usd, run_id)

    def keep_table(self, run_id: str, number: int, table: Table, first: int = 0) -> None:
        """Store the run's table and its rows; `first` is the number of the first row.

        Replaces the facts and rows that are stored already.
        """
        facts = json.dumps(_FACTS.dump_python(table.facts, exclude_defaults=True))
        self._write("INSERT OR REPLACE INTO tables VALUES (?, ?, ?)", run_id, number, facts)
        self._write_rows(
            "INSERT OR REPLACE INTO rows VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
            [
                (
                    run_id,
                    number,
                    first + index,
                    row.size,
                    row.count,
                    row.dtype,
                    row.redop,
                    row.root,
                    _text(row.out_of_place),
                    _text(row.in_place),
                    row.at,
                )
                for index, row in enumerate(table.rows)
            ],
        )

    def keep_finding(self, run_id: str, number: int, finding: KeptFinding) -> None:
        """Store the run's finding with this number; leave one that exists unchanged."""
        values = (run_id, number, finding.kind, finding.level, finding.rank, finding.text)
        self._write("INSERT OR IGNORE INTO findings VALUES (?, ?, ?, ?, ?, ?)", *values)

    def keep_setting(self, run_id: str, setting: Setting) -> None:
        """Store the run's setting; leave one that exists unchanged."""
        text = setting.model_dump_json()
        self._write("INSERT OR IGNORE INTO settings VALUES (?, ?)", run_id, text)

    def setting(self, run_id: str) -> Setting | None:
        """Return the run's setting; None if it is not known."""
        rows = self._read("SELECT setting FROM settings WHERE run_id = ?", run_id)
        return Setting.model_validate_json(rows[0]["setting"]) if rows else None

    def keep_baseline(self, name: str, run_id: str) -> None:
        """Store the run as the baseline with this name, in place of an earlier one."""
        self.check_writable()
        self._write("INSERT OR REPLACE INTO baselines VALUES (?, ?)", name, run_id)

    def baseline(self, name: str) -> RunRecord:
        """Return the run that is the baseline with this name; InputError if there is none."""
        rows = self._read("SELECT name, run_id FROM baselines ORDER BY name")
        baselines = {row["name"]: row["run_id"] for row in rows}
        if name in baselines:
            return self.find(baselines[name])
        hint = "keep one with `gpuctl results RUN --keep-baseline NAME`"
        raise InputError(
            f"there is no baseline {name}",
            f"there are: {', '.join(baselines)}" if baselines else hint,
        )

    def runs(self) -> tuple[RunRecord, ...]:
        """Return all runs, newest first."""
        rows = self._read("SELECT * FROM runs ORDER BY started DESC")
        return tuple(self._record(row) for row in rows)

    def _record(self, row: sqlite3.Row) -> RunRecord:
        try:
            followed = json.loads(row["followed"])
            return RunRecord.model_validate({**dict(row), "followed": followed})
        except ValidationError as error:
            raise RunError(
                f"{self._path} has a run {row['run_id']!r} that is none: {first_mistake(error)}",
                "move the file away; gpuctl then starts a new history",
            ) from error

    def tables(self, run_id: str) -> tuple[Table, ...]:
        """Return the run's tables in the order in which they began."""
        tables = self._read(
            "SELECT number, facts FROM tables WHERE run_id = ? ORDER BY number", run_id
        )
        of_table: dict[int, list[Row]] = {}
        for row in self._read(
            "SELECT * FROM rows WHERE run_id = ? ORDER BY in_table, number", run_id
        ):
            of_table.setdefault(row["in_table"], []).append(_row(row))
        return tuple(
            Table(
                facts=_FACTS.validate_json(table["facts"]),
                rows=tuple(of_table.get(table["number"], ())),
            )
            for table in tables
        )

    def findings(self, run_id: str) -> tuple[KeptFinding, ...]:
        """Return the findings about the run's output, in the order in which they were made."""
        rows = self._read(
            "SELECT kind, level, rank, text FROM findings WHERE run_id = ? ORDER BY number", run_id
        )
        return tuple(KeptFinding.model_validate(dict(row)) for row in rows)

    def find(self, run_id_or_name: str) -> RunRecord:
        """Return the run with this id, else the newest with this name; InputError for neither."""
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
        """Make the tables of a new database; RunError for one of another gpuctl."""
        if self._version() == SCHEMA_VERSION:
            return
        with self._transaction():
            version = self._version()  # another process may have made them meanwhile
            if version == 0:
                for statement in SCHEMA.split(";"):
                    self._database.execute(statement)
                self._database.execute(f"PRAGMA user_version = {SCHEMA_VERSION}")
        if version not in (0, SCHEMA_VERSION):
            raise RunError(
                f"{self._path} has version {version}, this gpuctl reads {SCHEMA_VERSION}",
                "use the gpuctl that wrote it, or move the file away for a new history",
            )

    def _version(self) -> int:
        version: int = self._database.execute("PRAGMA user_version").fetchone()[0]
        return version

    def _read(self, query: str, *values: object) -> list[sqlite3.Row]:
        with self._errors():
            return self._database.execute(query, values).fetchall()

    def _write(self, statement: str, *values: object) -> None:
        self._write_rows(statement, [values])

    def _write_rows(self, statement: str, rows: list[tuple[object, ...]]) -> None:
        with self._errors(), self._transaction():
            self._database.executemany(statement, rows)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        """Write all or nothing, with one writer at a time."""
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
            if getattr(error, "sqlite_errorcode", 0) & 0xFF in _NO_ROOM:
                raise unwritable(self._path, str(error)) from error
            raise RunError(
                f"{self._path} cannot be used: {error}",
                "move the file away; gpuctl then starts a new history",
            ) from error


def _refusal(database: Path) -> StateError | None:
    """Make the database's folder; return the error if this user may not write there, else None.

    Raises StateError if the disk has no room, or if a database that exists cannot be read.
    """
    runs = database.parent
    try:
        runs.mkdir(parents=True, exist_ok=True, mode=0o700)
        database.stat()
    except FileNotFoundError:
        pass  # the first command makes it
    except OSError as error:
        refusal = disk_error(error.filename or runs, error)
        if not is_access_error(error):
            raise refusal from error
        return refusal
    is_read_only = os.statvfs(runs).f_flag & os.ST_RDONLY
    number = errno.EROFS if is_read_only else errno.EACCES
    denied = OSError(number, os.strerror(number))
    if database.exists() and not os.access(database, os.R_OK):
        raise disk_error(database, denied)
    writable = os.access(runs, os.W_OK) and (not database.exists() or os.access(database, os.W_OK))
    return None if writable else disk_error(database, denied)


_TIMING = TypeAdapter(Timing)
_ROW = TypeAdapter(Row)
_ROW_FIELDS = tuple(field.name for field in dataclasses.fields(Row))


def _text(half: Timing | None) -> str | None:
    """Return a row's half as JSON, which has `Infinity` where a job printed `inf`."""
    return None if half is None else json.dumps(_TIMING.dump_python(half, exclude_defaults=True))


def _row(row: sqlite3.Row) -> Row:
    fields = {name: row[name] for name in _ROW_FIELDS}
    for half in ("out_of_place", "in_place"):
        fields[half] = None if row[half] is None else json.loads(row[half])
    return _ROW.validate_python(fields)
