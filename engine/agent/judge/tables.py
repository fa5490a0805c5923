"""The tables of nccl-tests, read line by line from a job's output: rows, facts and a footer.

Supervisor and client use this same reader of nccl-tests' formats.
The formats are those of src/common.cu, src/common.h and src/util.cu of nccl-tests 2.9 to 2.19.6
(https://github.com/NVIDIA/nccl-tests, 2026-11-22); `table_rows` reads a row, this module the rest.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from engine.agent.judge.table_rows import Fragment, Shape, parse_fragment, parse_row, strip_prefix
from engine.contract.table import Row, TableRank

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
    *("#", "NCCL", "Test "),
    *("nThread", "nccl-tests", "Collective test", " Pid ", "Out of bounds", "Avg bus", "busbw"),
    "Reducing maxBytes",
)
_TYPES = ("float", "half", "int8", "int32", "int64", "double", "f8e", "fp8_e")
"""Parts of the names of all types, one of which is in each row: a quick test of many lines."""
_WORTH_ROW = re.compile(r"(?<=\d)[ \t]+\d+[ \t]+[a-z]")
_VERSIONS = re.compile(r"# nccl-tests version (\S+) nccl-headers=\d+ nccl-library=(\d+)")
_STARTING = re.compile(r"# (?:Collective test starting: (\S+)|CPU stand-in for nccl-tests' (\w+):)")
_FLAGS = re.compile(
    r"# nThread (?P<threads>\d+) nGpus (?P<gpus>\d+) minBytes (?P<min_bytes>\d+)"
    r" maxBytes (?P<max_bytes>\d+) step: (?P<step>\d+)\((?P<kind>factor|bytes)\)"
    r" warmup iters: (?P<warmup>\d+)\s+iters: (?P<iterations>\d+)"
    r"(?: agg iters: (?P<aggregated>\d+))?(?: validation: (?P<checks>\d+))?"
    r"(?: graph: (?P<graph>\d+))?(?: unalign: (?P<unalign>\d+))?"
)
CASE = re.compile(r"# gpuctl: case (\d+) of \d+: ")
"""The line in front of the table of a case of `type: nccl-tests` (plan/modes/nccl_tests.py)."""
_REDUCED = re.compile(r"# Reducing maxBytes to (\d+) due to memory limitation")
_SKIPPED = re.compile(r"# size \d+ skipped: ")  # from the lab's substitute for nccl-tests
_RANK = re.compile(
    r"#\s+Rank\s+(\d+)\s+(?:Group\s+(\d+)\s+)?Pid\s+(\d+) on\s+(\S+) device\s+(\d+)"
    r" \[([0-9a-fx:]+)\] ?(.*)"
)
_BOUNDS = re.compile(r"# Out of bounds values\s*: (\d+) (?:OK|FAILED)\s*$")
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
_DRIVER = re.compile(r"cudaDriverVersion (\d+)\s*$")
_FAILURE = re.compile(
    r"(?:(?P<host>[^\s:\]>]+): |^)(?P<text>Test (?:CUDA|NCCL) failure \S+:\d+ '.*'"
    r"|Test timeout \(\d+s\) \S+:\d+)\s*$"
)
_MOST = 100_000  # sizes of a table; with more they count as unknown


@dataclass
class ReadTable:
    """One table; `printed_on` is the rank of the node that printed it.

    `flags` are the header's numbers by name (min_bytes, max_bytes, step, factor, warmup,
    iterations, aggregated, checks, graph, unalign, threads, gpus), empty without that line. `nccl`
    is the library's version, `plugin` the network plugin's, `driver` CUDA's driver version.
    `out_of_bounds` and `average_busbw` are None without a footer. `copies` is above 1 if several
    programs printed such tables at once. `begun` is the time of the first line, in seconds. `case`
    is the number of the case of `type: nccl-tests`, 0 for any other table.
    """

    printed_on: int
    case: int = 0
    program: str = ""
    nccl_tests: str = ""
    nccl: str = ""
    plugin: str = ""
    driver: str = ""
    flags: dict[str, int] = field(default_factory=dict)
    ranks: list[TableRank] = field(default_factory=list)
    shape: Shape = field(default_factory=Shape)
    rows: list[Row] = field(default_factory=list)
    joined: set[Row] = field(default_factory=set)  # those that were torn
    out_of_bounds: int | None = None
    average_busbw: float | None = None
    too_slow: bool = False  # NCCL_TESTS_MIN_BW was not reached
    skipped: int = 0
    torn_size: int | None = None
    copies: int = 1
    has_json: bool = False
    is_judged: bool = False
    begun: float = 0.0

    @property
    def collective(self) -> str:
        """The program's name without `_perf`, or `nccl-tests` if it is unknown."""
        name, perf, _ = self.program.partition("_perf")  # NAME_SUFFIX of its Makefile: _perf_mpi
        return name if perf else "nccl-tests"

    @property
    def is_checked(self) -> bool:
        """Return whether nccl-tests checked the data; true if that is unknown."""
        return self.flags.get("checks") != 0

    @property
    def has_footer(self) -> bool:
        """Return whether nccl-tests printed its footer."""
        return self.out_of_bounds is not None or self.average_busbw is not None

    def sizes(self) -> list[int] | None:
        """Return the message sizes that the header announces; None if they are unknown."""
        flags = self.flags
        if not flags or flags["step"] <= (1 if flags["factor"] else 0):
            return None
        size = flags["min_bytes"]
        found: list[int] = []
        while size <= flags["max_bytes"] and len(found) < _MOST:
            found.append(size)
            if flags["factor"] and size == 0:
                break
            size = size * flags["step"] if flags["factor"] else size + flags["step"]
        return found if len(found) < _MOST else None

    @property
    def lost(self) -> int:
        """The number of rows that were printed but could not be read; 0 without a footer."""
        printed = self._printed()
        if printed <= 0 or self.out_of_bounds is None:
            return 0
        if not self.rows:
            return printed
        groups: dict[tuple[object, ...], int] = {}
        for row in self.rows:
            key = (row.dtype, row.redop, row.root)
            groups[key] = groups.get(key, 0) + 1
        return sum(-count % printed for count in groups.values())

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
        last = self.rows[-1] if self.rows else None
        group = [row for row in self.rows if last and _same_test(row, last)]
        found = len(group) % printed
        if group and found == 0 and self.torn_size is None:
            return None
        return self.torn_size if self.torn_size is not None else sizes[min(found, len(sizes) - 1)]


def _same_test(row: Row, other: Row) -> bool:
    return (row.dtype, row.redop, row.root) == (other.dtype, other.redop, other.root)


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
        self._programs = programs
        self._case = 0
        self._streams: dict[tuple[int, str], _Stream] = {}

    def reads(self, rank: int, stream: str, text: str) -> bool:
        """Return whether a line of the text may be of a table; `feed` ignores most lines."""
        here = self._streams.get((rank, stream))
        if here is not None and here.fragment is not None:
            return True
        if any(word in text for word in _WORTH):
            return True
        return any(word in text for word in _TYPES) and _WORTH_ROW.search(text) is not None

    def feed(self, rank: int, stream: str, text: str, time: float = 0.0) -> ReadTable | None:
        """Return the table to which the line of node `rank` belongs; None if it belongs to none."""
        if not self.reads(rank, stream, text):
            return None
        here = self._streams.setdefault((rank, stream), _Stream())
        announced = CASE.match(text)
        if announced:
            self._case = int(announced[1])
            return None
        text = strip_prefix(text)
        stripped = _STRIPPED.match(text)
        if stripped:
            text = f"# {text[stripped.end() :]}"
        if "NCCL" in text or "Test " in text:
            self._note_environment(here, text)
        comment = _COMMENT.search(text)
        if comment:
            return self._header(here, rank, text[comment.start() :], time)
        return self._body(here, rank, text, time)

    def _note_environment(self, here: _Stream, text: str) -> None:
        failure = _FAILURE.search(text)
        if failure:
            self.failures.append(TestFailure(failure["host"] or "", failure["text"]))
        for name, pattern in (("nccl", _NCCL), ("plugin", _PLUGIN), ("driver", _DRIVER)):
            found = pattern.search(text)
            value = next((group for group in found.groups() if group), "") if found else ""
            if value and value not in _OWN_NETWORKS:
                setattr(here, name, _dotted(value) if name == "driver" else value.strip())
                if here.table is not None and not getattr(here.table, name):
                    setattr(here.table, name, getattr(here, name))
        network = _NETWORK.search(text)
        if network:
            here.has_own_network = network[1] in _OWN_NETWORKS
        if here.table is not None and here.has_own_network:
            here.table.plugin = ""

    def _header(self, here: _Stream, rank: int, text: str, time: float) -> ReadTable | None:
        table = here.table
        versions, starting, flags = (
            pattern.match(text) for pattern in (_VERSIONS, _STARTING, _FLAGS)
        )
        if versions:
            table = self._begin(here, rank, time)
            table.nccl_tests, table.nccl = versions[1], nccl_version(int(versions[2]))
        elif starting:
            if table is None or table.flags or table.rows:
                table = self._begin(here, rank, time)
            table.program = starting[1] or starting[2]
        elif flags:
            if table is not None and table.flags and not table.rows and not table.has_footer:
                table.copies += 1
            elif table is None or table.flags or table.rows:
                table = self._begin(here, rank, time)
            table.flags = {
                name: int(value)
                for name, value in flags.groupdict().items()
                if value is not None and name != "kind"
            }
            table.flags["factor"] = int(flags["kind"] == "factor")
        elif table is not None:
            self._note(table, text)
        return table

    def _begin(self, here: _Stream, rank: int, time: float) -> ReadTable:
        here.fragment = None
        here.table = ReadTable(rank, self._case, self._program(), begun=time)
        here.table.nccl, here.table.driver = here.nccl, here.driver
        here.table.plugin = "" if here.has_own_network else here.plugin
        self.tables.append(here.table)
        return here.table

    def _program(self) -> str:
        """Return the program of the next table according to the job's commands."""
        if len(set(self._programs)) == 1:
            return self._programs[0]
        place = self._case - 1 if self._case else len(self.tables)
        return self._programs[place] if place < len(self._programs) else ""

    def _note(self, table: ReadTable, text: str) -> None:
        """Read a comment line within a table."""
        listed = _RANK.match(text)
        if listed:
            rank, group, pid, host, device, pci, name = listed.groups()
            of = TableRank(
                int(rank), int(group or 0), int(pid), host, int(device), pci, name.strip()
            )
            table.ranks.append(of)
        elif _SKIPPED.match(text):
            table.skipped += 1
        columns = text.replace("#wrong", " #wrong").split()
        if "busbw" in columns and "algbw" in columns:
            table.shape = Shape("error" not in columns, "i_min" in columns)
        for pattern in (_REDUCED, _BOUNDS, _AVERAGE, _CONCLUDED):
            found = pattern.match(text)
            if not found:
                continue
            if pattern is _REDUCED and table.flags:
                table.flags["max_bytes"] = int(found[1])
                table.flags["min_bytes"] = min(table.flags["min_bytes"], int(found[1]))
            elif pattern is _BOUNDS:
                table.out_of_bounds = int(found[1])
            elif pattern is _AVERAGE:
                table.average_busbw = _number(found[1])
                table.too_slow = found[2] == "FAILED"
            elif pattern is _CONCLUDED:
                table.program = found[1]

    def _body(self, here: _Stream, rank: int, text: str, time: float) -> ReadTable | None:
        table = here.table
        shape = Shape() if table is None else table.shape
        row, is_joined = parse_row(text, shape), False
        if row is None and here.fragment is not None:
            row, is_joined = here.fragment.add(text, shape), True
        if row is not None:
            if table is None or table.has_footer:
                table = self._begin(here, rank, time)
            here.fragment, table.torn_size = None, None
            table.rows.append(row)
            if is_joined:
                table.joined.add(row)
            return table
        fragment = parse_fragment(text)
        if fragment is not None:
            here.fragment = fragment
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
