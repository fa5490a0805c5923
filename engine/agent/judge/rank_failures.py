"""What Python and launchers print of the rank that failed first.

The formats were read off real outputs (tests/engine/gpu_outputs, 2026-11-27): PyTorch 2.11 prints a
rank's exception with `[rankN]: ` before each line (since 2.2), torchrun a block `Root Cause (first
observed failure)`, Open MPI 4.1.6 `mpirun noticed that process rank N …` for a signal.
"""

from __future__ import annotations

import re
import signal
from dataclasses import dataclass, field

from engine.contract.worker_events import NodeFact

_TEXT = 200  # characters of a quoted line
_IN_BLOCK = 8  # lines of torchrun's block, and of mpirun's
_MOST = 1000  # ranks of a node in a traceback at once; a job may print what it likes

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
        if len(seen.in_traceback) < _MOST:
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
