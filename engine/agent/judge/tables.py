"""The tables of nccl-tests, read line by line from a job's output: rows, facts and a footer.

The formats are those of src/common.cu, src/common.h and src/util.cu of nccl-tests 2.9 to 2.19.6
(https://github.com/NVIDIA/nccl-tests, 2026-11-22); `table_rows` reads a row, this module the rest.

The JSON that a node collects (engine/agent/node/outputs.py) becomes the same tables: src/util.cu of
nccl-tests 2.17.3 to 2.19.6, JSON_FILE_VERSION 1 to 3 (2026-11-22). Each part of a table is in one
event.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from datetime import datetime, timezone
from functools import lru_cache
from pathlib import Path
from typing import Any, NamedTuple

from engine.agent.judge.table_rows import Fragment, Shape, parse_fragment, parse_row, strip_prefix
from engine.contract.event import Event
from engine.contract.head_events import GateJudged, OutputJudged, TableRead
from engine.contract.plan import LaunchPlan
from engine.contract.table import CASE_MARK, MOST_ROWS, Facts, GateVerdict, Row, TableRank, Timing
from engine.contract.worker_events import ITERATIONS

_COMMENT = re.compile(
    r"^#|# (?:nccl-tests version|Collective test|nThread|Out of bounds|Avg bus|Reducing maxBytes)"
)
# Documents and filters leave out the `#` (sed 's/^# *//', text that was pasted).
_STRIPPED = re.compile(
    r"\s*(?=nThread \d+ nGpus |nccl-tests version |Collective test (?:starting|concluded):"
    r"|Using devices|Rank\s+\d+\s+(?:Group\s+\d+\s+)?Pid |Reducing maxBytes to "
    r"|size\s+count\s+type\s|Out of bounds values\s*:|Avg bus bandwidth\s*:)"
)
_WORTH = (
    "#",
    "NCCL",
    "Test ",
    "nThread",
    "nccl-tests",
    "Collective test",
    " Pid ",
    "Out of bounds",
    "Avg bus",
    "busbw",
    "Reducing maxBytes",
)
_TYPES = ("float", "half", "int8", "int32", "int64", "double", "f8e", "fp8_e")
"""Parts of the names of all types, one of which is in each row: a quick test of many lines."""
_WORTH_ROW = re.compile(r"(?<=\d)[ \t]+\d+[ \t]+[a-z]")
_VERSIONS = re.compile(r"# nccl-tests version (\S+) nccl-headers=\d+ nccl-library=(\d{1,9})")
_STARTING = re.compile(r"# (?:Collective test starting: (\S+)|CPU stand-in for nccl-tests' (\w+):)")
_FLAGS = re.compile(
    r"# nThread (?P<threads>\d{1,18}) nGpus (?P<gpus>\d{1,18}) minBytes (?P<min_bytes>\d{1,18})"
    r" maxBytes (?P<max_bytes>\d{1,18}) step: (?P<step>\d{1,18})\((?P<kind>factor|bytes)\)"
    r" warmup iters: (?P<warmup>\d{1,18})\s+iters: (?P<iterations>\d{1,18})"
    r"(?: agg iters: (?P<aggregated>\d{1,18}))?(?: validation: (?P<checks>\d{1,18}))?"
    r"(?: graph: (?P<graph>\d{1,18}))?(?: unalign: (?P<unalign>\d{1,18}))?"
)
_CASE = re.compile(rf"{CASE_MARK}(\d{{1,9}}) of \d+: ")
_REDUCED = re.compile(r"# Reducing maxBytes to (\d{1,18}) due to memory limitation")
_SKIPPED = re.compile(r"# size \d+ skipped: ")  # from the lab's substitute for nccl-tests
_RANK = re.compile(
    r"#\s+Rank\s+(\d{1,18})\s+(?:Group\s+(\d{1,18})\s+)?Pid\s+(\d{1,18}) on\s+(\S+)"
    r" device\s+(\d{1,18})"
    r" \[([0-9a-fx:]+)\] ?(.*)"
)
_BOUNDS = re.compile(r"# Out of bounds values\s*: (\d{1,18}) (?:OK|FAILED)\s*$")
_AVERAGE = re.compile(r"# Avg bus bandwidth\s*: (\S+)(?: GB/s)?\s*(OK|FAILED)?\s*$")
_CONCLUDED = re.compile(r"# Collective test concluded: (\S+)")
_NCCL = re.compile(r"NCCL version ([\w.+-]+)")
_PLUGIN = re.compile(
    r"NET/OFI (?:Initializing|Using) (aws-ofi-nccl \S+)|Loaded net plugin (.+)$"
    r"|P2P plugin (?:v\d+ )?(\S+)$|Initialized NET plugin (.+)$"
)
_NETWORK = re.compile(r"Using network (\S[^\n]*?)\s*$")
_OWN_NETWORKS = ("Socket", "IB")
"""NCCL's own networks: with one of them a plugin that was loaded is not used (src/transport)."""
_DRIVER = re.compile(r"cudaDriverVersion (\d{1,9})\s*$")
_FAILURE = re.compile(
    r"(?:(?P<host>[^\s:\]>]+): |^)(?P<text>Test (?:CUDA|NCCL) failure \S+:\d+ '.*'"
    r"|Test timeout \(\d+s\) \S+:\d+)\s*$"
)
UNKNOWN = "nccl-tests"
"""The collective of a table without the name of its program."""
_MOST = 100_000  # sizes of a table; with more they count as unknown


class _Test(NamedTuple):
    """What a row tests: rows of one test differ in their size alone."""

    dtype: str
    redop: str | None
    root: int | None


@dataclass
class ReadTable:
    """One table as far as it is read; `printed_on` is the rank of the node that printed it.

    `number` counts the reader's tables from 0.
    `flags` are the header's numbers by name (min_bytes, max_bytes, step, factor, warmup,
    iterations, aggregated, checks, graph, unalign, threads, gpus), empty without that line. `nccl`
    is the library's version, `plugin` the network plugin's, `driver` CUDA's driver version.
    `out_of_bounds` and `average_busbw` are None without a footer. `copies` is above 1 if several
    programs printed such tables at once. `begun` is the time of the first line as in Facts. `case`
    is the number of the case of `type: nccl-tests`, 0 for any other table. `rows` and `ranks` are
    those that are not released yet, `row_count` and `rank_count` count all of them, `sent_rows` and
    `sent_ranks` those that are in events.
    """

    printed_on: int
    case: int = 0
    program: str = ""
    number: int = 0
    nccl_tests: str = ""
    nccl: str = ""
    plugin: str = ""
    driver: str = ""
    flags: dict[str, int] = field(default_factory=dict)
    ranks: list[TableRank] = field(default_factory=list)
    rank_count: int = 0
    sent_ranks: int = 0
    shape: Shape = field(default_factory=Shape)
    rows: list[Row] = field(default_factory=list)
    row_count: int = 0
    sent_rows: int = 0
    tests: dict[_Test, int] = field(default_factory=dict)
    """The numbers of rows of each test."""
    last_test: _Test | None = None
    stamps: dict[tuple[int, _Test], str] = field(default_factory=dict)
    """The times that `-S` adds to rows, by their size and test."""
    joined: set[Row] = field(default_factory=set)  # those that were torn
    out_of_bounds: int | None = None
    average_busbw: float | None = None
    too_slow: bool = False  # NCCL_TESTS_MIN_BW was not reached
    skipped: int = 0
    torn_size: int | None = None
    copies: int = 1
    has_json: bool = False
    is_judged: bool = False
    is_restored: bool = False  # output of it is not kept
    begun: str | None = None

    @property
    def collective(self) -> str:
        """The program's name without `_perf`, or `nccl-tests` if it is unknown."""
        name, perf, _ = self.program.partition("_perf")  # NAME_SUFFIX of its Makefile: _perf_mpi
        return name if perf else UNKNOWN

    @property
    def is_checked(self) -> bool:
        """Return whether nccl-tests checked the data; true if that is unknown."""
        return self.flags.get("checks") != 0

    @property
    def has_footer(self) -> bool:
        """Return whether nccl-tests printed its footer."""
        return self.out_of_bounds is not None or self.average_busbw is not None

    def add_rows(self, rows: Iterable[Row]) -> None:
        """Append the rows."""
        for row in rows:
            self.rows.append(row)
            self.last_test = test = test_of(row)
            self.tests[test] = self.tests.get(test, 0) + 1
            self.row_count += 1
            if row.at:
                self.stamps[row.size, test] = row.at

    def replace_rows(self, rows: Iterable[Row]) -> None:
        """Put the rows in the place of those before."""
        self.joined.clear()
        self.rows, self.row_count, self.sent_rows, self.tests = [], 0, 0, {}
        self.add_rows(rows)

    def replace_ranks(self, ranks: Iterable[TableRank]) -> None:
        """Put the ranks in the place of those before."""
        self.ranks = list(ranks)
        self.rank_count, self.sent_ranks = len(self.ranks), 0

    def add_rank(self, rank: TableRank) -> None:
        """Append the rank."""
        self.ranks.append(rank)
        self.rank_count += 1

    def release(self) -> None:
        """Free rows and ranks, which nobody needs any more; a run may print very many tables."""
        self.rows, self.ranks = [], []
        self.joined.clear()

    def facts(self) -> Facts:
        """Return the facts of the table so far, without its ranks, case, verdicts and end."""
        return Facts(
            rank=self.printed_on,
            collective=self.collective,
            nccl_tests=self.nccl_tests,
            nccl=self.nccl,
            plugin=self.plugin,
            driver=self.driver,
            flags=dict(self.flags),
            is_checked=self.is_checked,
            out_of_bounds=self.out_of_bounds,
            average_busbw=self.average_busbw,
            lost=self.lost,
            from_json=self.has_json,
            begun=self.begun,
        )

    def restore(self, facts: Facts) -> None:
        """Take the facts over that an earlier reader has recorded."""
        self.printed_on, self.flags, self.begun = facts.rank, dict(facts.flags), facts.begun
        self.program = "" if facts.collective == UNKNOWN else f"{facts.collective}_perf"
        self.nccl_tests, self.nccl = facts.nccl_tests, facts.nccl
        self.plugin, self.driver = facts.plugin, facts.driver
        self.out_of_bounds, self.average_busbw = facts.out_of_bounds, facts.average_busbw
        self.has_json = facts.from_json

    def sizes(self) -> tuple[int, ...] | None:
        """Return the message sizes that the header announces; None if they are unknown."""
        flags = self.flags
        if not flags:
            return None
        return _sizes(flags["min_bytes"], flags["max_bytes"], flags["step"], flags["factor"])

    @property
    def lost(self) -> int:
        """The number of rows that were printed but could not be read; 0 without a footer."""
        printed = self._printed()
        if printed <= 0 or self.out_of_bounds is None:
            return 0
        return sum(-count % printed for count in self.tests.values()) if self.tests else printed

    def _printed(self) -> int:
        """Return the number of rows that each of the table's tests printed; 0 if unknown."""
        sizes = self.sizes()
        return 0 if sizes is None or self.copies > 1 else len(sizes) - self.skipped

    @property
    def ended_at(self) -> int | None:
        """The size at which the table ends too early; None if it is complete or that is unknown."""
        sizes, printed = self.sizes(), self._printed()
        if sizes is None or printed <= 0 or self.has_footer:
            return None
        count = 0 if self.last_test is None else self.tests[self.last_test]
        if self.torn_size is not None:
            return self.torn_size
        return None if count and count % printed == 0 else sizes[count % printed]


def test_of(row: Row) -> _Test:
    """Return what the row tests."""
    return _Test(row.dtype, row.redop, row.root)


@lru_cache(maxsize=8)
def _sizes(least: int, most: int, step: int, factor: int) -> tuple[int, ...] | None:
    if step <= (1 if factor else 0):
        return None
    size = least
    sizes: list[int] = []
    while size <= most and len(sizes) < _MOST:
        sizes.append(size)
        if factor and size == 0:
            break
        size = size * step if factor else size + step
    return tuple(sizes) if len(sizes) < _MOST else None


def _time_text(seconds: float) -> str | None:
    """Return the time as ISO 8601 writes it in UTC; None for 0 and for what is no time."""
    try:
        time = datetime.fromtimestamp(seconds, timezone.utc)  # noqa: UP017  Python before 3.11
    except (ValueError, OverflowError, OSError):
        return None
    return time.isoformat().replace("+00:00", "Z") if seconds else None


@dataclass(frozen=True)
class TestFailure:
    """A failure of CUDA or NCCL that nccl-tests reported on `host`; `text` is its line."""

    host: str
    text: str


@dataclass
class _Stream:
    """The state of one stream of a node's output; `has_own_network` is of NCCL, without plugin."""

    table: ReadTable | None = None
    fragment: Fragment | None = None
    nccl: str = ""
    plugin: str = ""
    driver: str = ""
    has_own_network: bool = False


class TableReader:
    """A reader of a run's lines; `tables` has all tables so far, in the order of their begin.

    `programs` are nccl-tests' programs in the order of the job's commands. They name the tables of
    versions that do not print their name.
    """

    def __init__(self, programs: tuple[str, ...] = ()) -> None:
        self.tables: list[ReadTable] = []
        self.failures: list[TestFailure] = []
        self.case = 0
        """The number of the case that was announced last."""
        self.changed: dict[int, ReadTable] = {}
        """The tables that have changed since they were taken out of it, by their numbers."""
        self._programs = programs
        self._streams: dict[tuple[int, str], _Stream] = {}

    def reads(self, rank: int, stream: str, text: str) -> bool:
        """Return whether a line of the text may be of a table; `feed` ignores most lines."""
        state = self._streams.get((rank, stream))
        if state is not None and state.fragment is not None:
            return True
        if any(word in text for word in _WORTH):
            return True
        return any(word in text for word in _TYPES) and _WORTH_ROW.search(text) is not None

    def feed(self, rank: int, stream: str, text: str, time: float = 0.0) -> ReadTable | None:
        """Return the table to which the line of node `rank` belongs; None if it belongs to none."""
        if not self.reads(rank, stream, text):
            return None
        state = self._streams.setdefault((rank, stream), _Stream())
        announced = _CASE.match(text) if (rank, stream) == (0, "stdout") else None
        if announced:
            self.case = int(announced[1])
            state.table, state.fragment = None, None
            return None
        table = self._feed(state, rank, text, time)
        if table is not None:
            self.changed[table.number] = table
        return table

    def merge(self, document: ReadTable) -> ReadTable:
        """Merge a JSON document's table into the one from the text, or add it; return the table."""
        key = (document.case, document.program, False)
        same = (
            table for table in self.tables if (table.case, table.program, table.has_json) == key
        )
        table = next(same, None)
        if table is None:
            table = document
            self._add(table)
        table.has_json = True
        self.changed[table.number] = table
        if table is document:
            return table
        if document.row_count >= table.row_count:
            stamps = table.stamps
            table.replace_rows(
                replace(row, at=stamps.get((row.size, test_of(row)), "")) for row in document.rows
            )
        table.flags = {**table.flags, **document.flags}
        if document.ranks:
            table.replace_ranks(document.ranks)
        table.nccl = document.nccl
        if document.has_footer:
            table.out_of_bounds = document.out_of_bounds
            table.average_busbw, table.too_slow = document.average_busbw, document.too_slow
        return table

    def restore(self, read: TableRead) -> None:
        """Take over what an earlier reader has recorded of a table: its output is not kept."""
        while len(self.tables) <= min(read.table, MOST_ROWS):
            self._add(ReadTable(0))
        table, self.case = self.tables[min(read.table, MOST_ROWS)], read.case
        table.case = read.case
        if read.facts is not None:
            table.restore(read.facts)
            self._streams.setdefault((read.facts.rank, "stdout"), _Stream()).table = table
        missing = read.rows[max(0, table.row_count - read.first_row) :]
        table.is_restored = table.is_restored or not table.row_count or bool(missing)
        table.add_rows(missing)
        table.rank_count = max(table.rank_count, read.first_rank + len(read.ranks))
        table.sent_rows, table.sent_ranks = table.row_count, table.rank_count

    def _add(self, table: ReadTable) -> None:
        table.number = len(self.tables)
        self.tables.append(table)

    def _feed(self, state: _Stream, rank: int, text: str, time: float) -> ReadTable | None:
        text = strip_prefix(text)
        stripped = _STRIPPED.match(text)
        if stripped:
            text = f"# {text[stripped.end() :]}"
        if "NCCL" in text or "Test " in text:
            self._note_environment(state, text)
        comment = _COMMENT.search(text)
        if comment:
            return self._header(state, rank, text[comment.start() :], time)
        return self._body(state, rank, text, time)

    def _note_environment(self, state: _Stream, text: str) -> None:
        failure = _FAILURE.search(text)
        if failure:
            self.failures.append(TestFailure(failure["host"] or "", failure["text"]))
        for name, pattern in (("nccl", _NCCL), ("plugin", _PLUGIN), ("driver", _DRIVER)):
            match = pattern.search(text)
            value = next((group for group in match.groups() if group), "") if match else ""
            if value and value not in _OWN_NETWORKS:
                setattr(state, name, _dotted(value) if name == "driver" else value.strip())
                if state.table is not None and not getattr(state.table, name):
                    setattr(state.table, name, getattr(state, name))
        network = _NETWORK.search(text)
        if network:
            state.has_own_network = network[1] in _OWN_NETWORKS
        if state.table is not None and state.has_own_network:
            state.table.plugin = ""

    def _header(self, state: _Stream, rank: int, text: str, time: float) -> ReadTable | None:
        table = state.table
        versions, starting, flags = (
            pattern.match(text) for pattern in (_VERSIONS, _STARTING, _FLAGS)
        )
        if versions:
            table = self._begin(state, rank, time)
            table.nccl_tests, table.nccl = versions[1], nccl_version(int(versions[2]))
        elif starting:
            if table is None or table.flags or table.row_count:
                table = self._begin(state, rank, time)
            table.program = starting[1] or starting[2]
        elif flags:
            if table is not None and table.flags and not table.row_count and not table.has_footer:
                table.copies += 1
            elif table is None or table.flags or table.row_count:
                table = self._begin(state, rank, time)
            table.flags = {
                name: int(value)
                for name, value in flags.groupdict().items()
                if value is not None and name != "kind"
            }
            table.flags["factor"] = int(flags["kind"] == "factor")
        elif table is not None:
            self._note(table, text)
        return table

    def _begin(self, state: _Stream, rank: int, time: float) -> ReadTable:
        state.fragment = None
        state.table = ReadTable(rank, self.case, self._program(), begun=_time_text(time))
        state.table.nccl, state.table.driver = state.nccl, state.driver
        state.table.plugin = "" if state.has_own_network else state.plugin
        self._add(state.table)
        self.changed[state.table.number] = state.table
        return state.table

    def _program(self) -> str:
        """Return the program of the next table according to the job's commands."""
        if len(set(self._programs)) == 1:
            return self._programs[0]
        place = self.case - 1 if self.case else len(self.tables)
        return self._programs[place] if place < len(self._programs) else ""

    def _note(self, table: ReadTable, text: str) -> None:
        """Read a comment line within a table."""
        listed = _RANK.match(text)
        if listed:
            rank, group, pid, host, device, pci, name = listed.groups()
            of = TableRank(
                int(rank), int(group or 0), int(pid), host, int(device), pci, name.strip()
            )
            table.add_rank(of)
        elif _SKIPPED.match(text):
            table.skipped += 1
        columns = text.replace("#wrong", " #wrong").split()
        if "busbw" in columns and "algbw" in columns:
            table.shape = Shape("error" not in columns, "i_min" in columns)
        for pattern in (_REDUCED, _BOUNDS, _AVERAGE, _CONCLUDED):
            match = pattern.match(text)
            if not match:
                continue
            if pattern is _REDUCED and table.flags:
                table.flags["max_bytes"] = int(match[1])
                table.flags["min_bytes"] = min(table.flags["min_bytes"], int(match[1]))
            elif pattern is _BOUNDS:
                table.out_of_bounds = int(match[1])
            elif pattern is _AVERAGE:
                table.average_busbw = _number(match[1])
                table.too_slow = match[2] == "FAILED"
            elif pattern is _CONCLUDED:
                table.program = match[1]

    def _body(self, state: _Stream, rank: int, text: str, time: float) -> ReadTable | None:
        table = state.table
        shape = Shape() if table is None else table.shape
        row, is_joined = parse_row(text, shape), False
        if row is None and state.fragment is not None:
            row, is_joined = state.fragment.add(text, shape), True
        if row is not None:
            if table is None or table.has_footer:
                table = self._begin(state, rank, time)
            state.fragment, table.torn_size = None, None
            table.add_rows((row,))
            if is_joined:
                table.joined.add(row)
            return table
        fragment = parse_fragment(text)
        if fragment is not None:
            state.fragment = fragment
            if table is not None:
                table.torn_size = fragment.size
        return None


def nccl_version(code: int) -> str:
    """Return NCCL_VERSION_CODE in the usual form: 2708 is 2.7.8, 22707 is 2.27.7."""
    if code < 10000:
        return f"{code // 1000}.{code // 100 % 10}.{code % 100}"
    return f"{code // 10000}.{code // 100 % 100}.{code % 100}"


def _dotted(code: str) -> str:
    """Return cudaDriverVersion in the usual form: 12040 is 12.4."""
    return f"{int(code) // 1000}.{int(code) % 1000 // 10}"


def _number(text: str) -> float | None:
    try:
        return float(text)
    except ValueError:
        return None


def read_json(document: dict[str, Any], printed_on: int, case: int = 0) -> ReadTable:
    """Return the table of a case's document; ValueError, KeyError or TypeError for other ones."""
    config = document["config"]
    factor = "step_factor" in config
    table = ReadTable(printed_on, case, program=Path(document["args"][0]).name)
    table.nccl = nccl_version(int(document["nccl_version"]))
    table.flags = {
        "threads": _whole(config["nthreads"]),
        "gpus": _whole(config["ngpus"]),
        "min_bytes": _whole(config["minimum_bytes"]),
        "max_bytes": _whole(config["maximum_bytes"]),
        "step": _whole(config["step_factor" if factor else "step_bytes"]),
        "factor": int(factor),
        "warmup": _whole(config["warmup_iters"]),
        "iterations": _whole(config["iterations"]),
        "aggregated": _whole(config["aggregated_iterations"]),
        "checks": _whole(config["validation"]),
        "graph": _whole(config["graph"]),
    }
    table.replace_ranks(_rank(device) for device in config.get("devices", ()))
    table.add_rows([_row(result) for result in document["results"]])
    if "out_of_bounds" in document:
        table.out_of_bounds = _whole(document["out_of_bounds"]["count"])
    for name, key in (  # 2.17.3 to 2.17.8 misspell both
        ("average_bus_bandwidth", "bandwidth"),
        ("average_bus_bandwidith", "bandwidith"),
    ):
        if name in document:
            table.average_busbw = float(document[name][key])
            table.too_slow = document[name]["okay"] == "false"
    return table


def _whole(value: Any) -> int:
    """Return the value as a number that an event may have."""
    number = int(value)
    if abs(number) >= 1 << 63:
        raise ValueError(value)
    return number


def _rank(device: dict[str, Any]) -> TableRank:
    return TableRank(
        rank=_whole(device["rank"]),
        group=_whole(device["group"]),
        pid=_whole(device["pid"]),
        host=str(device["hostname"]),
        device=_whole(device["device"]),
        pci=str(device["device_hex"]),
        name=str(device["device_info"]),
    )


def _row(result: dict[str, Any]) -> Row:
    return Row(
        size=_whole(result["size"]),
        count=_whole(result["count"]),
        dtype=str(result["type"]),
        redop=str(result["redop"]),
        root=_whole(result["root"]),
        out_of_place=_half(result, "out_of_place"),
        in_place=_half(result, "in_place"),
    )


def _half(row: dict[str, Any], name: str) -> Timing | None:
    half = row.get(name)
    if half is None:
        return None
    time_us = half["time"] if "time" in half else half["cpu_time"]
    wrong = half["nwrong"]
    iterations = row.get(f"{name}_per_iter") or {}
    return Timing(
        float(time_us),
        float(half["alg_bw"]),
        float(half["bus_bw"]),
        wrong=None if wrong is None else _whole(wrong),
        iterations=tuple(float(iterations[key]) for key in ITERATIONS if key in iterations),
    )


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
        new_rows, new_ranks = table.row_count - table.sent_rows, table.rank_count - table.sent_ranks
        rows = table.rows[-new_rows:] if new_rows > 0 else []
        ranks = table.ranks[-new_ranks:] if new_ranks > 0 else []
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
