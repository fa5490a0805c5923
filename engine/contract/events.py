"""The events of a run: workers send them, the head's journal and a client's copy keep them.

Each event is one class, whose `kind` is its name in JSON: `{"kind": "node_lost", "time": …, …}`.
`time` is in seconds since the epoch, by the clock of the machine where the event happened. It is
0.0 until a worker's stream or the journal sets it.
Fields that are marked `internal` are for the head and the next supervisor: they count neither when
two events are compared, nor does a client print them.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass, field, fields, replace
from typing import Any, ClassVar, Literal, Optional, TypeVar

from config.bounds import ExitCode, Port, Rank, Text, Time, Whole
from config.identifiers import ClusterName, NodeName, RunId, RunName, SshHost
from engine.contract.codec import from_json, to_json
from engine.contract.plan import Sweep
from engine.contract.table import Facts, Row, TableRank

EVENTS: dict[str, type[Event]] = {}
"""The classes of all events by their kinds."""

E = TypeVar("E", bound="Event")

Stream = Literal["stdout", "stderr"]
Status = Literal["done", "failed", "stopped"]

_INTERNAL = "internal"


def internal(default: Any) -> Any:
    """Return a field of which only the head and the next supervisor know."""
    return field(default=default, compare=False, metadata={_INTERNAL: True})


def public_fields(event: Event) -> Iterator[str]:
    """Yield the names of the fields that a client prints."""
    return (each.name for each in fields(event) if _INTERNAL not in each.metadata)


@dataclass(frozen=True)
class Event:
    """An event of a run. A class with a `kind` is known to every reader from its definition on.

    No client prints an event that `is_internal`.
    """

    kind: ClassVar[str] = ""
    is_internal: ClassVar[bool] = False

    def __init_subclass__(cls) -> None:
        if "kind" in vars(cls):
            EVENTS[cls.kind] = cls

    @property
    def time(self) -> float:
        """The time of the event; each class has it as its last public field."""
        raise NotImplementedError

    @property
    def sequence(self) -> int:
        """The worker's number of the event, from 1 on; 0 for an event that no worker has sent."""
        return 0


@dataclass(frozen=True)
class NodeEvent(Event):
    """An event on the node `rank`."""

    rank: Rank


# The run


@dataclass(frozen=True)
class RunNode:
    """A node of the run."""

    rank: Rank
    name: NodeName
    private_ip: SshHost
    role: Text


@dataclass(frozen=True)
class RunQueued(Event):
    """The run waits for its nodes, at `place` (from 1) of the queue; `ahead` are runs before it.

    It comes again when place or runs change. A run that leaves the queue has no other event but
    `run_finished`. Like `run_started` it has what a client that did not start the run needs.
    """

    kind = "run_queued"
    run_id: RunId
    name: RunName
    cluster: ClusterName
    on_stop: Literal["keep", "destroy"]
    nodes: tuple[RunNode, ...]
    place: Whole
    ahead: tuple[RunId, ...]
    outputs: tuple[Text, ...] = ()
    saved: Text = ""
    notifies: bool = False
    ports: tuple[Port, ...] = ()
    time: Time = 0.0
    boot_id: str = internal("")
    clock: Optional[float] = internal(None)


@dataclass(frozen=True)
class RunStarted(Event):
    """The supervisor has the plan. `nodes` are in rank order.

    It has what a client that did not start the run needs to end it: `on_stop`, and `outputs`, the
    patterns of files to fetch. `saved` is as in LaunchPlan. `notifies`: the journal ends with
    `notifications_ended`. `boot_id` is that of the head, `clock` the offset of the run's RunClock.
    """

    kind = "run_started"
    run_id: RunId
    name: RunName
    cluster: ClusterName
    startup_order: Text
    stop_criteria: Text
    on_stop: Literal["keep", "destroy"]
    nodes: tuple[RunNode, ...]
    programs: tuple[Text, ...] = ()
    sweep: Optional[Sweep] = None
    outputs: tuple[Text, ...] = ()
    saved: Text = ""
    notifies: bool = False
    ports: tuple[Port, ...] = ()
    time: Time = 0.0
    boot_id: str = internal("")
    clock: Optional[float] = internal(None)


@dataclass(frozen=True)
class StopAsked(Event):
    """A client stops the run."""

    kind = "stop_asked"
    reason: str
    time: Time = 0.0


@dataclass(frozen=True)
class DurationOver(Event):
    """The run's max_duration, in seconds, is over."""

    kind = "duration_over"
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True)
class OutputStopped(Event):
    """No node has printed a line for `seconds`, the run's no_output_timeout."""

    kind = "output_stopped"
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True)
class StartupOver(Event):
    """The run's startup_timeout, in seconds, is over; the job may have started in time."""

    kind = "startup_over"
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True)
class HeadEnding(Event):
    """The head, of rank `head_rank` if the run uses it, shuts down, or the unit is stopped."""

    kind = "head_ending"
    head_rank: Optional[Rank] = 0
    time: Time = 0.0


@dataclass(frozen=True)
class SupervisorResumed(Event):
    """The supervisor was killed, and another one has taken the run up."""

    kind = "supervisor_resumed"
    time: Time = 0.0


@dataclass(frozen=True)
class FollowedFailure:
    """Nodes whose jobs failed after the first failure, in the same way."""

    nodes: tuple[NodeName, ...]
    text: str


@dataclass(frozen=True)
class RunFinished(Event):
    """The run is over, and no process of it is left on any node.

    `followed` are failures after the first, which is the reason.
    """

    kind = "run_finished"
    status: Status
    exit_code: ExitCode
    first_failed_rank: Optional[Rank]
    reason: str
    followed: tuple[FollowedFailure, ...] = ()
    time: Time = 0.0


@dataclass(frozen=True)
class PoweringOff(Event):
    """The nodes power off, because the run has `on_stop: destroy` and no client destroys them."""

    kind = "powering_off"
    time: Time = 0.0


@dataclass(frozen=True)
class SupervisorLost(Event):
    """The supervisor ended before the run did; each node ends its part of the run by itself.

    `reason` says more, if the head knows more (`the head was rebooted …`).
    """

    kind = "supervisor_lost"
    reason: str = ""
    time: Time = 0.0


@dataclass(frozen=True)
class HeadUnreachable(Event):
    """The head does not answer this client since `seconds`; the run may go on.

    It comes from the client, and is in no journal.
    """

    kind = "head_unreachable"
    seconds: float
    reason: str
    time: Time = 0.0


# The attempts of a run


@dataclass(frozen=True)
class AttemptEnded(Event):
    """An attempt has failed, and another one follows `pause_s` seconds later.

    `number` of at most `attempts`. No process of the run is left on any node.
    """

    kind = "attempt_ended"
    number: Whole
    attempts: Whole
    exit_code: ExitCode
    first_failed_rank: Optional[Rank]
    reason: str
    pause_s: Whole
    time: Time = 0.0


@dataclass(frozen=True)
class WaitingForNodes(Event):
    """The next attempt starts when these lost nodes are back; the run waits so many seconds."""

    kind = "waiting_for_nodes"
    nodes: tuple[NodeName, ...]
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True)
class NodesHealed(Event):
    """A client made lost nodes again; `addresses` are their private addresses, by names."""

    kind = "nodes_healed"
    addresses: dict[NodeName, SshHost]
    time: Time = 0.0


@dataclass(frozen=True)
class NodesLeftOut(Event):
    """These lost nodes did not come back in time: the run goes on with the `left` other ones."""

    kind = "nodes_left_out"
    nodes: tuple[NodeName, ...]
    left: Whole
    time: Time = 0.0


@dataclass(frozen=True)
class AttemptStarted(Event):
    """An attempt starts; the first one, with `number` 1, has no such event.

    `nodes` are those of the attempt, in the order of their ranks in it, if their number may change;
    else empty: all nodes of the run.
    """

    kind = "attempt_started"
    number: Whole
    nodes: tuple[RunNode, ...] = ()
    time: Time = 0.0


# The nodes


@dataclass(frozen=True)
class NodePrepared(NodeEvent):
    """The node's worker is ready to start the job."""

    kind = "node_prepared"
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class NodeNotPrepared(NodeEvent):
    """The node's worker cannot run the job."""

    kind = "node_not_prepared"
    reason: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class NodeStarted(NodeEvent):
    """The job's bash runs on the node."""

    kind = "node_started"
    pid: Whole
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class NodeReady(NodeEvent):
    """The node is ready: nodes that wait for it may start."""

    kind = "node_ready"
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class NodeNotReady(NodeEvent):
    """The node's job did not become ready in time."""

    kind = "node_not_ready"
    reason: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class RankStarted(NodeEvent):
    """A launcher started rank `process` of `size` on the node `rank`."""

    kind = "rank_started"
    process: Whole
    size: Whole
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class NodeAnswersAgain(NodeEvent):
    """The node answers again after `silence_s` seconds without a heartbeat; the run goes on."""

    kind = "node_answers_again"
    silence_s: float
    time: Time = 0.0


@dataclass(frozen=True)
class DiskFull(NodeEvent):
    """A file of the run on the node cannot be written, `text` names it and why; the job goes on."""

    kind = "disk_full"
    text: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class GpusIdle(NodeEvent):
    """The GPUs of the node have had no work for `seconds`; it comes once for each such stretch."""

    kind = "gpus_idle"
    gpus: tuple[int, ...]
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class NodeUnreachable(NodeEvent):
    """ssh did not reach the node, so its worker was not started."""

    kind = "node_unreachable"
    reason: str
    time: Time = 0.0


@dataclass(frozen=True)
class NodeLost(NodeEvent):
    """The node's worker ended without a report, does not answer, or did not stop in time.

    `node_gone` follows when the supervisor has given up the node's worker. `symptom` is what the
    run's verdict says, if that is not `reason` ("was lost: …").
    """

    kind = "node_lost"
    reason: str
    time: Time = 0.0
    symptom: str = internal("")


@dataclass(frozen=True)
class Evidence(NodeEvent):
    """The state of a lost node as `source` (a command or a file) showed it at the time."""

    kind = "evidence"
    node: NodeName
    source: Text
    text: str
    time: Time = 0.0


@dataclass(frozen=True)
class NodeGone(NodeEvent):
    """No process of the run is left on the node, or the node cannot be reached any more."""

    kind = "node_gone"
    reason: str
    time: Time = 0.0


# The output, and what the supervisor reads from it


@dataclass(frozen=True)
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


@dataclass(frozen=True)
class DroppedOutput:
    """Removed output of a rank: its size in bytes, and the times of its first and last event.

    `sequence` is the worker's number of the last event.
    """

    rank: Rank
    size: Whole
    since: Time
    until: Time
    sequence: Whole = 0


@dataclass(frozen=True)
class OutputDropped(Event):
    """Output that was removed because the journal was over its budget.

    It was at the offsets `start` to `end` of the journal. Without `ranks`, a client left other
    events out (engine/record/event_budget.py).
    """

    kind = "output_dropped"
    start: Whole
    end: Whole
    ranks: tuple[DroppedOutput, ...]
    time: Time = 0.0


@dataclass(frozen=True)
class NetworkSeen(NodeEvent):
    """A finding about the network that the node `rank` uses, in one line.

    `proof`: it is the network that the run's preset promises; `warning`: it is not, but the run
    goes on; `fault`: it is not, and the run fails.
    """

    kind = "network_seen"
    level: Literal["proof", "warning", "fault"]
    text: str
    time: Time = 0.0


@dataclass(frozen=True)
class OutputJudged(NodeEvent):
    """A finding about the output of the node `rank`, in one line.

    `warning`: the run goes on and may end as done; `fault`: the run ends as failed. `malformed` is
    the kind of the node's event that could not be read, if the finding is about that.
    """

    kind = "output_judged"
    level: Literal["warning", "fault"]
    text: str
    time: Time = 0.0
    malformed: str = internal("")


@dataclass(frozen=True)
class CaseStarted(Event):
    """Case `number` of `of` cases of nccl-tests starts; `left_s` is None before one has ended.

    `left_s` is an estimate of the seconds to the end of the last case.
    """

    kind = "case_started"
    number: Whole
    of: Whole
    title: str
    left_s: Optional[float]
    time: Time = 0.0


@dataclass(frozen=True)
class GateJudged(NodeEvent):
    """The verdict of a gate on a bandwidth, in one line; `cases` are the numbers of its cases.

    `proof`: it is reached; `warning` and `fault`: it is not. `busbw` and `expected` are in GB/s;
    `busbw` is None if the size was not measured. `source` is that of `expected`.
    """

    kind = "gate_judged"
    level: Literal["proof", "warning", "fault"]
    text: str
    cases: tuple[int, ...]
    busbw: Optional[float]
    expected: float
    source: str
    time: Time = 0.0


ITERATIONS = ("min_us", "max_us", "p99_us", "cv_pct")
"""The statistics of single iterations that are kept; the times of all of them are not."""


@dataclass(frozen=True)
class TableWritten(NodeEvent):
    """The JSON that a program of nccl-tests wrote on the node `rank`, without its `env`.

    `case` is the number of the program's case.
    """

    kind = "table_written"
    document: dict[str, Any]
    case: Whole = 0
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class TableRead(Event):
    """What the head has read of the table with this number in the attempt since the event before.

    `facts` are without `ranks` and `ended_at`, and None if they are as before. Ranks and rows take
    the place of those from `first_rank` and `first_row` on. A second time it changes nothing.
    `case` is the number of the case, 0 for a table that no case printed.
    """

    kind = "table_read"
    is_internal = True
    table: Whole
    case: Whole
    facts: Optional[Facts]
    first_rank: Whole
    ranks: tuple[TableRank, ...]
    first_row: Whole
    rows: tuple[Row, ...]
    ended_at: Optional[Whole]
    time: Time = 0.0


# Notifications


@dataclass(frozen=True)
class LeaseEnding(Event):
    """The cluster's lifetime ends soon, `at` this time: its nodes power off then."""

    kind = "lease_ending"
    at: Time
    time: Time = 0.0


@dataclass(frozen=True)
class Notified(Event):
    """A notification was sent, or given up after so many tries; then `error` says why.

    `number` counts the run's notices, `target` is the place in the run file's `notify`, `event`
    what the target was notified of.
    """

    kind = "notified"
    number: Whole
    target: Whole
    event: str
    tries: Whole
    error: str = ""
    time: Time = 0.0

    @property
    def text(self) -> str:
        """The warning about a notification that was not sent."""
        tries = "1 try" if self.tries == 1 else f"{self.tries} tries"
        return (
            f"notify[{self.target}] was not notified of '{self.event}' after {tries}: {self.error}"
        )


@dataclass(frozen=True)
class NotificationsEnded(Event):
    """After the end of the run: no notification is on its way any more."""

    kind = "notifications_ended"
    time: Time = 0.0


# From a worker to its supervisor


@dataclass(frozen=True)
class WorkerMessage(Event):
    """A message from a worker to its supervisor: it is in no journal."""


@dataclass(frozen=True)
class Reached(WorkerMessage):
    """The node has a worker, which another supervisor launched."""

    kind = "reached"
    time: Time = 0.0


@dataclass(frozen=True)
class NoWorker(WorkerMessage):
    """The node has no worker; engine/agent/node/supervisor_link.py lists the reasons."""

    kind = "no_worker"
    why: str
    time: Time = 0.0


@dataclass(frozen=True)
class Sample(WorkerMessage):
    """The counters of a node at a time (engine/agent/metrics/node_counters.py, gpu_counters.py)."""

    kind = "sample"
    counters: dict[str, Any]
    is_last: bool = False
    time: Time = 0.0


@dataclass(frozen=True)
class HeadSilent(WorkerMessage):
    """The worker has not heard the head, and ends its job."""

    kind = "head_silent"
    reason: str
    time: Time = 0.0
    sequence: int = internal(0)


@dataclass(frozen=True)
class WorkerEnded(WorkerMessage):
    """The worker ends: this is its last event."""

    kind = "ended"
    time: Time = 0.0
    sequence: int = internal(0)


# Lines of JSON


def change(event: E, **fields: Any) -> E:
    """Return the event with other values of these fields; its class must have them."""
    return replace(event, **fields)


_encode = json.JSONEncoder(default=to_json).encode


def to_line(event: Event, **fields: Any) -> str:
    """Return the event as JSON, with other values of these fields: a line without its end."""
    return _encode({"kind": event.kind, "time": event.time, **vars(event), **fields})


def event_class(data: Any) -> Optional[type[Event]]:
    """Return the class of the event that a line's JSON data has; None for an unknown kind."""
    kind = data.get("kind") if isinstance(data, dict) else None
    return EVENTS.get(kind) if isinstance(kind, str) else None


def decode(data: Any) -> Optional[Event]:
    """Return the event of a line's JSON data; None for an unknown kind.

    Raises DecodeError, which is a ValueError, for a malformed event of a known kind.
    """
    cls = event_class(data)
    return None if cls is None else from_json(cls, data)
