"""The first failure of a run in words, and what followed from it: a pure function of what is known.

The node that reports its end first is not always the first to fail: ranks that lose a rank exit
at once, while the node of the lost rank still collects its output. So a node with a cause (a kill
for memory, a broken GPU, a full disk, …) comes before a node that has none.

What Python and launchers print of the rank that failed first is read here too. The formats were
read off real outputs (tests/engine/gpu_outputs, 2026-11-27): PyTorch 2.11 prints a rank's exception
with `[rankN]: ` before each line (since 2.2), torchrun a block `Root Cause (first observed
failure)`, Open MPI 4.1.6 `mpirun noticed that process rank N …` for a signal.
"""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Collection, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal, NamedTuple

from engine.contract.head_events import FollowedFailure
from engine.contract.node_plan import NodePlan
from engine.contract.verdict import Verdict, exit_reason
from engine.contract.worker_events import NodeExamined, NodeFact

_TEXT = 200  # characters of a quoted line
_IN_BLOCK = 8  # lines of torchrun's block, and of mpirun's
_MOST_LINES = 1000  # ranks of a node in a traceback at once; a job may print what it likes

_RANK_LINE = re.compile(r"\[rank(\d{1,9})\]: (.*)")
_TRACEBACK = "Traceback (most recent call last)"
_EXCEPTION = re.compile(r"([A-Za-z_][\w.]*)(?:: (.*))?$")
_FOLLOWS = re.compile(
    r"torch\.distributed\.Dist\w+Error|DistBackendError|Connection (?:closed|reset) by peer"
    r"|Broken pipe|ncclRemoteError"
)
"""Exceptions of ranks that lost another one."""

_ROOT_CAUSE = "Root Cause (first observed failure)"
_FIELD = re.compile(r"\s*(rank|exitcode)\s*: (-?\d{1,9})\b")
_SIGNALLED = re.compile(
    r"noticed that process rank (\d{1,9}) with PID \d+ on node (\S{1,255})\s+exited on signal"
    r" (\d{1,3})\b"
)
_FIRST_EXIT = "The first process to do so was:"
_PROCESS = re.compile(r"\s*Process name: \[\[\d+,\d+\],(\d{1,9})\]")
_EXIT_CODE = re.compile(r"\s*Exit code: +(\d{1,9})\b")
_TOO_FEW_GPUS = "Invalid number of GPUs: "
"""nccl-tests, src/util.cu of 2.19.6."""
_READ = (f"]: {_TRACEBACK}", _ROOT_CAUSE, "noticed that process rank", _FIRST_EXIT, _TOO_FEW_GPUS)


@dataclass
class _Node:
    """What a node's job has printed so far of ranks that failed."""

    exception: str = ""
    launcher: str = ""
    in_traceback: set[int] = field(default_factory=set)
    block: int = 0  # lines of a launcher's block that are still to read
    rank: str = ""  # the rank in the block


class RankFailures:
    """A reader of whole lines, by the rank of the node that printed them."""

    def __init__(self) -> None:
        self._nodes: dict[int, _Node] = {}

    @staticmethod
    def reads(text: str) -> bool:
        """Return whether `feed` may find something in a line of the text; mostly it cannot."""
        return any(words in text for words in _READ)

    def awaits(self, node: int) -> bool:
        """Return whether the node's next lines may belong to a traceback or a launcher's block."""
        seen = self._nodes.get(node)
        return seen is not None and (seen.block > 0 or bool(seen.in_traceback))

    def feed(self, node: int, line: str) -> None:
        """Read a line."""
        if not self.reads(line) and not self.awaits(node):
            return
        seen = self._nodes.setdefault(node, _Node())
        if (of_rank := _RANK_LINE.search(line)) is not None:
            _read_exception(seen, int(of_rank[1]), of_rank[2])
        elif (signalled := _SIGNALLED.search(line)) is not None:
            _name(seen, f"rank {signalled[1]} ({signalled[2]})", 128 + int(signalled[3]), "mpirun")
        elif _TOO_FEW_GPUS in line and not seen.exception:
            seen.exception = f"nccl-tests says: {line[line.index(_TOO_FEW_GPUS) :].strip()[:_TEXT]}"
        elif _ROOT_CAUSE in line or _FIRST_EXIT in line:
            seen.block, seen.rank = _IN_BLOCK, ""
        elif seen.block:
            seen.block -= 1
            _read_block(seen, line)

    def facts(self, node: int) -> list[NodeFact]:
        """Return as facts the node's first exception, and the rank that its launcher names."""
        seen = self._nodes.get(node, _Node())
        facts = [NodeFact("exception", seen.exception)] if seen.exception else []
        return facts + ([NodeFact("rank", seen.launcher)] if seen.launcher else [])


def _read_exception(seen: _Node, rank: int, text: str) -> None:
    """Read a line of a rank's exception; the first one that follows from no other rank counts."""
    if text.startswith(_TRACEBACK):
        if len(seen.in_traceback) < _MOST_LINES:
            seen.in_traceback.add(rank)
    elif rank in seen.in_traceback and _EXCEPTION.match(text):
        seen.in_traceback.discard(rank)
        if not seen.exception and not _FOLLOWS.search(text):
            seen.exception = f"rank {rank} raised {text.strip()[:_TEXT]}"


def _read_block(seen: _Node, line: str) -> None:
    """Read a line of torchrun's `rank : 1` and `exitcode : -9 (pid: 12)`, or of mpirun's block."""
    part = _FIELD.match(line)
    if process := _PROCESS.match(line):
        seen.rank = process[1]
    elif part and part[1] == "rank":
        seen.rank = part[2]
    elif seen.rank and part:
        code = int(part[2])
        _name(seen, f"rank {seen.rank}", code if code >= 0 else 128 - code, "torchrun")
    elif seen.rank and (code_line := _EXIT_CODE.match(line)):
        _name(seen, f"rank {seen.rank}", int(code_line[1]), "mpirun")


def _name(seen: _Node, rank: str, code: int, launcher: str) -> None:
    """Keep the first rank that a launcher names; `code` is 128 + N for signal N."""
    seen.block = 0
    if not seen.launcher:
        try:
            end = f"was killed by {signal.Signals(code - 128).name}"
        except ValueError:
            end = f"exited with {code}"
        seen.launcher = f"{launcher} says that {rank} {end} first"


Level = Literal["proof", "warning", "fault"]


class Finding(NamedTuple):
    """A finding about a node."""

    level: Level
    rank: int
    text: str


def hosts_of(nodes: Sequence[NodePlan]) -> dict[str, int]:
    """Return the rank of each node by all names that it may have in output."""
    ranks = {}
    for rank, node in enumerate(nodes):
        address = node.private_ip
        for host in (node.name, address, "ip-" + address.replace(".", "-")):
            ranks[host] = rank
    return ranks


_CRASHES = (signal.SIGSEGV, signal.SIGBUS, signal.SIGILL, signal.SIGFPE, signal.SIGABRT)
_MEANINGS = {
    signal.SIGSEGV: "it used memory that it does not have",
    signal.SIGBUS: "memory behind a file was missing, often because /dev/shm or a disk is full",
    signal.SIGILL: "this processor does not have an instruction of the program",
    signal.SIGFPE: "arithmetic error, such as a division by zero",
    signal.SIGABRT: "it ended itself after an error",
    signal.SIGTERM: "another process asked it to end",
}
"""What a signal means if nothing more is known."""

_ORDER = (
    "start",
    "agent",
    "memory",
    "gpu",
    "crash",
    "core",
    "disk",
    "files",
    "nccl",
    "exception",
    "launcher",
    "rank",
    "nccl-peer",
    "clock",
)
"""Kinds of facts that explain a node's failure, the strongest first."""
_CAUSES = ("start", "agent", "memory", "gpu", "disk", "files", "nccl", "exception")
"""Kinds that make a node the first to fail, though another node reported its end before."""
_KILLERS = ("memory", "gpu")
"""Kinds that end processes which a launcher on another node waits for."""
_MOST = 3  # facts in a reason


class Explanation(NamedTuple):
    """The verdict with its reason in words, what followed, and facts that are no reason."""

    verdict: Verdict
    followed: tuple[FollowedFailure, ...]
    others: tuple[Finding, ...]


def explain(
    verdict: Verdict, names: list[str], examined: list[NodeExamined], collective: str = ""
) -> Explanation:
    """Return the verdict in words. `examined` are in order of arrival, `names` in rank order.

    `collective` says which collective of NCCL timed out, if any. Only the verdict of a job that
    failed by itself changes; the facts of all other runs are returned as warnings.
    """
    if verdict.status != "failed" or not verdict.is_jobs_own:
        return Explanation(verdict, (), _warnings(names, examined))
    assert verdict.first_failed_rank is not None
    reported = verdict.first_failed_rank
    first = _first_failure(reported, verdict.exit_code, examined)
    code = first.exit_code if first.has_failed else verdict.exit_code
    reason = f"{names[first.rank]}: {_end_text(first, code, collective)}"
    # What follows stays, such as a notice of AWS.
    reason += verdict.reason.removeprefix(exit_reason(names[reported], verdict.exit_code))
    explained = replace(verdict, exit_code=code, first_failed_rank=first.rank, reason=reason)
    later = [
        examination
        for examination in examined
        if examination.has_failed and examination.rank != first.rank
    ]
    named = {first.rank, *(node.rank for node in later)}
    return Explanation(explained, _followed(later, names), _warnings(names, examined, named))


def exit_text(code: int) -> str:
    """Return the end of a process: `exited with 7`, `killed by SIGKILL (137)`."""
    number = _signal_of(code)
    return f"exited with {code}" if number is None else f"killed by {number.name} ({code})"


def _signal_of(code: int) -> signal.Signals | None:
    """Return the signal that a status means: bash and mpirun return 128 + N."""
    try:
        number = signal.Signals(code - 128)
    except ValueError:
        return None
    return number if number < signal.SIGRTMIN else None


def _first_failure(reported: int, code: int, examined: list[NodeExamined]) -> NodeExamined:
    """Return the node that failed first, `reported` unless another one has a stronger cause."""
    by_rank = {examination.rank: examination for examination in examined}
    first = by_rank.get(reported, NodeExamined(reported, code, is_own_end=True, facts=()))
    if first.has(*_CAUSES):
        return first
    tests: tuple[Callable[[NodeExamined], bool], ...] = (
        lambda node: node.has_failed and node.has(*_CAUSES),
        lambda node: node.has(*_KILLERS),
        lambda node: _signal_of(code) in _CRASHES and node.has("crash"),
    )
    for is_cause in tests:
        for node in examined:
            if is_cause(node):
                return node
    return first


def _end_text(node: NodeExamined, code: int, collective: str = "") -> str:
    """Return how the node's job ended, and why as far as it is known."""
    texts = [collective] if collective else []
    texts += _reasons(node, code)
    number = _signal_of(code)
    if not texts and number in _MEANINGS:
        texts = [_MEANINGS[number]]
    why = "; ".join(texts[:_MOST])
    if not node.has_failed:  # a process of it ended, and a launcher on another node noticed
        return why
    return f"{exit_text(code)}: {why}" if why else exit_text(code)


def _reasons(node: NodeExamined, code: int) -> list[str]:
    """Return the facts that explain the end, the strongest first."""
    texts: list[str] = []
    for kind in _ORDER:
        is_known = kind == "rank" and bool(texts)  # the rank alone says less than what it did
        if is_known or (kind == "crash" and _signal_of(code) not in _CRASHES):
            continue
        of_kind = [fact.text for fact in node.facts if fact.kind == kind]
        # torch's error file and the output have the same exception.
        texts += of_kind[:1] if kind == "exception" else of_kind
    return texts


def _followed(later: list[NodeExamined], names: list[str]) -> tuple[FollowedFailure, ...]:
    """Return the nodes that failed later; those with the same text are one entry."""
    texts: dict[str, list[str]] = {}
    for examination in later:
        texts.setdefault(_end_text(examination, examination.exit_code), []).append(
            names[examination.rank]
        )
    return tuple(FollowedFailure(tuple(nodes), text) for text, nodes in texts.items())


def _warnings(
    names: list[str], examined: list[NodeExamined], named: Collection[int] = ()
) -> tuple[Finding, ...]:
    """Return a warning for each fact that the reasons of the nodes `named` do not have."""
    return tuple(
        Finding("warning", examination.rank, f"{names[examination.rank]}: {fact.text}")
        for examination in examined
        for fact in examination.facts
        if fact.kind != "clock"  # the run has an event about it
        and (examination.rank not in named or fact.kind not in _ORDER)
    )
