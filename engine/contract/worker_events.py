"""The events that a node's worker sends: most for the journal, and messages to its supervisor.

Each process of the agent imports only the events that it needs: eight workers start at once.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal, Optional

from config.bounds import ExitCode, Rank, Time, Whole
from engine.contract.event import Event, NodeEvent, internal


@dataclass(frozen=True, eq=False, repr=False)
class NodePrepared(NodeEvent):
    """The node's worker is ready to start the job."""

    kind = "node_prepared"
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NodeNotPrepared(NodeEvent):
    """The node's worker cannot run the job."""

    kind = "node_not_prepared"
    reason: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NodeStarted(NodeEvent):
    """The job's bash runs on the node."""

    kind = "node_started"
    pid: Whole
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NodeReady(NodeEvent):
    """The node is ready: nodes that wait for it may start."""

    kind = "node_ready"
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NodeNotReady(NodeEvent):
    """The node's job did not become ready in time."""

    kind = "node_not_ready"
    reason: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class RankStarted(NodeEvent):
    """A launcher started rank `process` of `size` on the node `rank`."""

    kind = "rank_started"
    process: Whole
    size: Whole
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NodeExited(NodeEvent):
    """The job ended by itself on the node; `exit_code` is 128 + N if signal N ended it."""

    kind = "node_exited"
    exit_code: ExitCode
    signal: Optional[Whole]
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class NodeFact:
    """A fact about a node at the end of its job; engine/agent/judge/failures.py lists the kinds."""

    kind: str
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class NodeExamined(NodeEvent):
    """The node's worker examined the node at the end of its job, because of a failure or a fact.

    `is_own_end` means that the job ended before the run stopped it.
    """

    kind = "node_examined"
    exit_code: ExitCode
    is_own_end: bool
    facts: tuple[NodeFact, ...]
    time: Time = 0.0
    sequence: int = internal(0)

    def has(self, *kinds: str) -> bool:
        """Return whether one of the facts is of one of the kinds."""
        return any(fact.kind in kinds for fact in self.facts)

    @property
    def has_failed(self) -> bool:
        """Return whether the job failed by itself."""
        return self.is_own_end and self.exit_code != 0


@dataclass(frozen=True, eq=False, repr=False)
class NodeStopped(NodeEvent):
    """The supervisor ended the node's job because the run is over; `reason` has details, if any.

    `exit_code` and `signal` are as in NodeExited; `exit_code` is None for a job that never began.
    """

    kind = "node_stopped"
    reason: str = ""
    time: Time = 0.0
    exit_code: Optional[ExitCode] = internal(None)
    signal: Optional[Whole] = internal(None)
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NodeInterrupted(NodeEvent):
    """AWS's notice that it reclaims the node's spot instance.

    `action` is `terminate` for all instances of gpuctl; `at` is its time as AWS writes it
    (`2026-11-20T08:22:00Z`).
    """

    kind = "node_interrupted"
    action: str
    at: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class NoticeGiven(Event):
    """The job gets notice that it must end soon, because of the node `rank`, or of all without it.

    `deadline` is None if AWS names none. `text` says it in one line. NodeInterrupted and
    LeaseEnding are such notices too, with more words.
    """

    kind = "notice_given"
    rank: Optional[Rank]
    notice: Literal["rebalance", "maintenance", "capacity-block", "stop"]
    deadline: Optional[Time]
    text: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class DiskFull(NodeEvent):
    """A file of the run on the node cannot be written, `text` names it and why; the job goes on."""

    kind = "disk_full"
    text: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class ClockSet(Event):
    """The clock of a node was set by `seconds` while the run went on; `text` says it in one line.

    `rank` is None for the head of a run that does not use it.
    """

    kind = "clock_set"
    rank: Optional[Rank]
    seconds: float
    text: str
    level: Literal["warning"] = "warning"
    time: Time = 0.0
    sequence: int = internal(0)


Stream = Literal["stdout", "stderr"]


@dataclass(frozen=True, eq=False, repr=False)
class Output(NodeEvent):
    """Lines of the job's output, with line feeds between; without `ends_line` the last is a piece.

    `offset` is their position in the node's `rank-N.log`, in bytes. `judged`: the supervisor has
    read them; nothing follows from other lines, which the next supervisor only counts.
    """

    kind = "output"
    stream: Stream
    text: str
    ends_line: bool = True
    offset: Whole = 0
    time: Time = 0.0
    sequence: int = internal(0)
    judged: bool = internal(False)


ITERATIONS = ("min_us", "max_us", "p99_us", "cv_pct")
"""The statistics of single iterations that are kept; the times of all of them are not."""


@dataclass(frozen=True, eq=False, repr=False)
class TableWritten(NodeEvent):
    """The JSON that a program of nccl-tests wrote on the node `rank`, without its `env`.

    `case` is the number of the program's case.
    """

    kind = "table_written"
    document: dict[str, Any]
    case: Whole = 0
    time: Time = 0.0
    sequence: int = internal(0)


# From a worker to its supervisor


@dataclass(frozen=True, eq=False, repr=False)
class WorkerMessage(Event):
    """A message from a worker to its supervisor: it is in no journal."""


@dataclass(frozen=True, eq=False, repr=False)
class Reached(WorkerMessage):
    """The node has a worker, which another supervisor launched."""

    kind = "reached"
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NoWorker(WorkerMessage):
    """The node has no worker; engine/agent/node/supervisor_link.py lists the reasons."""

    kind = "no_worker"
    why: str
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class Sample(WorkerMessage):
    """The counters of a node at a time (engine/agent/metrics/node_counters.py, gpu_counters.py)."""

    kind = "sample"
    counters: dict[str, Any]
    is_last: bool = False
    time: Time = 0.0


@dataclass(frozen=True)
class Frame:
    """A function on the stack of a Python thread."""

    function: str
    path: str
    line: int


@dataclass(frozen=True)
class RankProcess:
    """A process of the job that its node's worker examined; engine/agent/node/rank_processes.py.

    `rank` and `size` are those that its launcher gave it, None without a launcher. `state` and
    `wchan` are the kernel's of the main thread (proc(5)). `has_run`: it used processor time
    meanwhile. `frames` are the Python functions of the main thread, the innermost first.
    `text` has all threads in words, and why there are no stacks.
    """

    pid: Whole
    rank: Optional[Whole]
    size: Optional[Whole]
    command: str
    state: str
    wchan: str
    has_run: bool
    frames: tuple[Frame, ...]
    text: str


@dataclass(frozen=True, eq=False, repr=False)
class RanksExamined(WorkerMessage):
    """The job's processes on the node while the job is silent."""

    kind = "ranks_examined"
    processes: tuple[RankProcess, ...]
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class HeadSilent(WorkerMessage):
    """The worker has not heard the head, and ends its job."""

    kind = "head_silent"
    reason: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True, eq=False, repr=False)
class WorkerEnded(WorkerMessage):
    """The worker ends: this is its last event."""

    kind = "ended"
    time: Time = 0.0
    sequence: int = internal(0)
