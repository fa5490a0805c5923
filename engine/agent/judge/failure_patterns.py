"""What a job's output says about its failure: NCCL's timeouts and warnings, full disks, EMFILE,
daemons that mpirun lost.

The formats are those of PyTorch: ProcessGroupNCCL.cpp of 1.13 to 2.9 and TraceUtils.h (`desync`),
https://github.com/pytorch/pytorch/blob/v2.6.0/torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp, and
the lines that users posted: pytorch/pytorch#118369, hiyouga/LlamaFactory#7396,
XPixelGroup/BasicSR#737 (2026-11-23). Open MPI's are in its help-errmgr-base.txt, `node-died`, as in
open-mpi/ompi#6618 and #11830 (2026-11-23); Open MPI 5 says PRTE in place of ORTE.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import NamedTuple

from config.number_ranges import fold_numbers
from engine.agent.judge.failures import RankFailures
from engine.agent.judge.nccl_warnings import (
    CAUSE,
    CONSEQUENCE,
    LAST_ERROR,
    WARN,
    read_warning,
)
from engine.contract.worker_events import NodeFact

RECENT = 1000  # lines of a node: an older complaint is not taken for the reason of its end
_TEXT = 200  # characters of a quoted line
NAMES = 4  # nodes to name
_MOST_DAEMONS = 1000  # of one mpirun; a job may print what it likes

# In `[rank3]:[E703 …] [PG ID 1 PG GUID 4 Rank 0] …` the first number is the rank of the job (since
# PyTorch 2.2), the second that of the process group.
_JOB_RANK = re.compile(r"\[rank(\d{1,18})\]:")
_TIMEOUT = re.compile(
    r"\[[^\[\]]*Rank (\d{1,18})\] ?Watchdog caught collective operation timeout:"
    r" WorkNCCL\((?:SeqNum=(\d{1,18}), )?OpType=(\w+)[^)]*?Timeout\(ms\)=(\d{1,18})\) ran for"
)
_LAST_WORK = re.compile(
    r"\[(PG [^\[\]]*?)? ?Rank (\d{1,18})\] "
    r".*[Ll]ast enqueued NCCL work: (-?\d{1,18}), last completed"
)
_MISSING = re.compile(r"To our best knowledge, ranks \[([\d, ]+)\] are the lagging ranks")
_NOT_JOINED = re.compile(
    r"\[([\d, ]+)\] finished collective #(\d{1,18}), but didn't join collective #(\d{1,18})"
)
_NUMBER = re.compile(r"\b\d{1,18}\b")
_DEFAULT_GROUP = re.compile(r"PG (ID )?0\b")

_COMPLAINTS = (
    ("No space left on device", "disk"),
    ("Disk quota exceeded", "disk"),
    ("Too many open files", "files"),
)
# mpirun's daemon on a node (orted, prted) is gone; the name is the one in mpirun's list of hosts.
_DAEMON = "Remote daemon"
_LOST_DAEMON = re.compile(r"Remote daemon *: \[[^ ]+\] on node (\S+)")
_OF_COLLECTIVES = ("collective", "NCCL work", "lagging ranks")
_READ = (*_OF_COLLECTIVES, *(words for words, _ in _COMPLAINTS), _DAEMON, WARN, LAST_ERROR)
_NO_ERROR = ("Exception raised from", "Traceback")
"""Beginnings of a line that follows LAST_ERROR where NCCL has none."""
_WORDS = {"disk": "it had no space left", "files": "it had no file descriptor left (`ulimit -n`)"}


class Collective(NamedTuple):
    """A collective of NCCL: its number in its process group (-1 if not known) and operation."""

    number: int
    operation: str


@dataclass
class _Timeout:
    """A collective that timed out after `seconds`, and the ranks that waited in it."""

    seconds: float
    waited: set[int] = field(default_factory=set)


class Complaint(NamedTuple):
    """A line in which a node's job complains, and how many lines the node had printed then."""

    kind: str
    line: str
    at: int


class Clues:
    """A reader of the whole lines of a run's output. `names` maps addresses to nodes' names."""

    def __init__(self, names: Mapping[str, str] = MappingProxyType({})) -> None:
        self._names = names
        self._timeouts: dict[Collective, _Timeout] = {}
        self._last_work: dict[int, int] = {}  # by rank, in the default process group
        self._missing: set[int] = set()
        self._has_other_group = False
        self._places: dict[int, int] = {}  # the node of each rank that a launcher started
        self._size = 0
        self._lines: dict[int, int] = {}
        self._complaints: dict[int, Complaint] = {}
        self._warnings: dict[int, Complaint] = {}  # the first cause of NCCL, else consequence
        self._last_errors: dict[int, str] = {}  # the text before PyTorch's `Last error:`
        self._lost_daemons: dict[int, list[str]] = {}  # by the node of the mpirun
        self._failures = RankFailures()

    def place(self, process: int, node: int, size: int) -> None:
        """Learn that rank `process` of `size` runs on the node with this rank."""
        self._places[process] = node
        self._size = size

    @staticmethod
    def reads(text: str) -> bool:
        """Return whether `feed` may find something in a line of the text; mostly it cannot."""
        return any(words in text for words in _READ) or RankFailures.reads(text)

    def awaits(self, node: int) -> bool:
        """Return whether the node's next line continues one that was read."""
        return node in self._last_errors or self._failures.awaits(node)

    def skip(self, node: int, lines: int) -> None:
        """Count lines of the node that have nothing to read."""
        self._lines[node] = self._lines.get(node, 0) + lines

    def feed(self, node: int, line: str) -> None:
        """Read a line of the node with this rank."""
        self._lines[node] = count = self._lines.get(node, 0) + 1
        for words, kind in _COMPLAINTS:
            if words in line:
                self._complaints[node] = Complaint(kind, line.strip()[:_TEXT], count)
        if any(words in line for words in _OF_COLLECTIVES):
            self._read(line)
        self._read_error(node, line, count)
        self._failures.feed(node, line)
        lost = _LOST_DAEMON.search(line) if _DAEMON in line else None
        if lost:
            names = self._lost_daemons.setdefault(node, [])
            name = self._names.get(lost[1], lost[1])
            if name not in names and len(names) < _MOST_DAEMONS:
                names.append(name)

    def _read_error(self, node: int, line: str, count: int) -> None:
        """Read a warning of NCCL, or its last error as PyTorch prints it."""
        begin, is_begin, rest = line.partition(LAST_ERROR)
        if is_begin and not rest.strip():
            self._last_errors[node] = begin
            return
        begin = self._last_errors.get(node, "")
        is_last_error = node in self._last_errors and line.startswith(begin)
        if is_last_error:
            line = line[len(begin) :]
            del self._last_errors[node]
            if not line.strip() or line.startswith(_NO_ERROR):
                return
        warning = read_warning(line) if is_last_error or WARN in line else None
        quote = f'"{line.strip()[:_TEXT]}"'
        if warning is not None:
            self._warn(node, Complaint(warning.kind, f"{warning.text}: {quote}", count))
        elif is_last_error:
            self._warn(node, Complaint(CONSEQUENCE, f"NCCL's last error: {quote}", count))

    def _warn(self, node: int, complaint: Complaint) -> None:
        """Keep the first cause, or the first consequence if there is no cause."""
        earlier = self._warnings.get(node)
        if earlier is None or (earlier.kind != CAUSE and complaint.kind == CAUSE):
            self._warnings[node] = complaint

    def _read(self, line: str) -> None:
        job_rank = _JOB_RANK.search(line)
        timeout = _TIMEOUT.search(line)
        if timeout:
            collective = Collective(int(timeout[2] or -1), timeout[3])
            known = self._timeouts.setdefault(collective, _Timeout(int(timeout[4]) / 1000))
            known.waited.add(int(job_rank[1] if job_rank else timeout[1]))
            return
        work = _LAST_WORK.search(line)
        if work and (not work[1] or _DEFAULT_GROUP.match(work[1])):
            self._last_work[int(job_rank[1] if job_rank else work[2])] = int(work[3])
        elif work:
            self._has_other_group = True
        for pattern in (_MISSING, _NOT_JOINED):
            missing = pattern.search(line)
            if missing:
                self._missing.update(map(int, _NUMBER.findall(missing[1])))

    def facts(self, node: int) -> list[NodeFact]:
        """Return as facts the node's last complaint, if it is recent, and what its mpirun lost."""
        facts = []
        complaint = self._complaints.get(node)
        if complaint is not None and self._lines[node] - complaint.at < RECENT:
            text = f'{_WORDS[complaint.kind]}: "{complaint.line}"'
            facts.append(NodeFact(complaint.kind, text))
        warning = self._warnings.get(node)
        if warning is not None and self._lines[node] - warning.at < RECENT:
            facts.append(NodeFact(warning.kind, warning.line))
        if names := self._lost_daemons.get(node):
            facts.append(NodeFact("launcher", f"mpirun lost its daemon on {_some(names)}"))
        return facts + self._failures.facts(node)

    def collective(self, names: list[str]) -> str:
        """Return the collective that timed out first, and who did not arrive; empty if none did.

        `names` are those of the nodes in rank order.
        """
        if not self._timeouts:
            return ""
        # The lowest number is the first that did not end; later ones wait behind it.
        collective = min(self._timeouts)
        timeout = self._timeouts[collective]
        number = f" number {collective.number}" if collective.number >= 0 else ""
        text = f"NCCL's {collective.operation}{number} timed out after {timeout.seconds:g} s: "
        late = {rank for rank, last in self._last_work.items() if last < collective.number}
        absent = (self._missing or late) - timeout.waited
        if absent:
            return f"{text}{self._ranks(absent, names)} did not arrive"
        waited = f"{self._ranks(timeout.waited, names)} waited"
        silent = set(range(self._size)) - timeout.waited - self._last_work.keys()
        if silent and not self._has_other_group:
            return f"{text}{waited}, {self._ranks(silent, names)} reported nothing"
        return text + waited

    def _ranks(self, ranks: set[int], names: list[str]) -> str:
        """Return the ranks and their nodes in words: `ranks 0-2, 5 (node0, node1)`."""
        places = sorted({self._places[rank] for rank in ranks if rank in self._places})
        where = f" ({_some([names[place] for place in places])})" if places else ""
        return f"{'rank' if len(ranks) == 1 else 'ranks'} {fold_numbers(ranks, ', ')}{where}"


def _some(names: list[str]) -> str:
    """Return the first names, and the number of the others."""
    more = f" and {len(names) - NAMES} more" if len(names) > NAMES else ""
    return ", ".join(names[:NAMES]) + more
