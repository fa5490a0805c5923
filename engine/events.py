"""The events of a run, as they are in its journal: one JSON object per line.

The agent writes them (engine/agent). The client reads them and stores the same lines.
engine/output_events.py, attempt_events.py, notification_events.py, queue_event.py, idle_event.py
and clock_event.py have some of them.
`time` is in seconds since the epoch, by the clock of the machine where the event happened.
"""

import json
from typing import Annotated, Any, Literal, get_args

from pydantic import Field, TypeAdapter, ValidationError

from config.bounds import ExitCode, Rank, Text, Time, Whole
from config.foreign import first_mistake
from config.identifiers import ClusterName, NodeName, RunId, RunName
from config.models import Value
from config.run.container_fields import Port
from engine.attempt_events import (
    AttemptEnded,
    AttemptStarted,
    NodesHealed,
    NodesLeftOut,
    OutputStopped,
    StartupOver,
    WaitingForNodes,
)
from engine.clock_event import ClockSet
from engine.gates import Sweep
from engine.idle_event import GpusIdle
from engine.notification_events import LeaseEnding, NotificationsEnded, Notified
from engine.output_events import (
    CaseStarted,
    GateJudged,
    NetworkSeen,
    Output,
    OutputDropped,
    OutputJudged,
    TableWritten,
)
from engine.queue_event import RunNode, RunQueued


class RunStarted(Value):
    """The supervisor has the plan. `nodes` are in rank order.

    It has what a client that did not start the run needs to end it: `on_stop`, and `outputs`, the
    patterns of files to fetch. `saved` is as in LaunchPlan. `notifies`: the journal ends with
    `notifications_ended`.
    """

    kind: Literal["run_started"] = "run_started"
    time: Time
    run_id: RunId
    name: RunName
    cluster: ClusterName
    startup_order: Text
    stop_criteria: Text
    on_stop: Literal["keep", "destroy"]
    programs: tuple[Text, ...] = ()
    sweep: Sweep | None = None
    outputs: tuple[Text, ...] = ()
    saved: Text = ""
    notifies: bool = False
    ports: tuple[Port, ...] = ()
    nodes: tuple[RunNode, ...]


class NodePrepared(Value):
    """The node's worker is ready to start the job."""

    kind: Literal["node_prepared"] = "node_prepared"
    time: Time
    rank: Rank


class NodeNotPrepared(Value):
    """The node's worker cannot run the job."""

    kind: Literal["node_not_prepared"] = "node_not_prepared"
    time: Time
    rank: Rank
    reason: str


class NodeStarted(Value):
    """The job's bash runs on the node."""

    kind: Literal["node_started"] = "node_started"
    time: Time
    rank: Rank
    pid: Whole


class NodeReady(Value):
    """The node is ready: nodes that wait for it may start."""

    kind: Literal["node_ready"] = "node_ready"
    time: Time
    rank: Rank


class NodeNotReady(Value):
    """The node's job did not become ready in time."""

    kind: Literal["node_not_ready"] = "node_not_ready"
    time: Time
    rank: Rank
    reason: str


class RankStarted(Value):
    """A launcher started rank `process` of `size` on the node `rank`."""

    kind: Literal["rank_started"] = "rank_started"
    time: Time
    rank: Rank
    process: Whole
    size: Whole


class NodeExited(Value):
    """The job ended by itself on the node; `exit_code` is 128 + N if signal N ended it."""

    kind: Literal["node_exited"] = "node_exited"
    time: Time
    rank: Rank
    exit_code: ExitCode
    signal: Whole | None


class NodeFact(Value):
    """A fact about a node at the end of its job; engine/agent/failures.py lists the kinds."""

    kind: str
    text: str


class NodeExamined(Value):
    """The node's worker examined the node at the end of its job, because of a failure or a fact.

    `is_own_end` means that the job ended before the run stopped it.
    """

    kind: Literal["node_examined"] = "node_examined"
    time: Time
    rank: Rank
    exit_code: ExitCode
    is_own_end: bool
    facts: tuple[NodeFact, ...]


class NodeStopped(Value):
    """The supervisor ended the node's job because the run is over; `reason` has details, if any."""

    kind: Literal["node_stopped"] = "node_stopped"
    time: Time
    rank: Rank
    reason: str = ""


class NodeInterrupted(Value):
    """AWS's notice that it reclaims the node's spot instance.

    `action` is `terminate` for all instances of gpuctl; `at` is its time as AWS writes it
    (`2026-11-20T08:22:00Z`).
    """

    kind: Literal["node_interrupted"] = "node_interrupted"
    time: Time
    rank: Rank
    action: str
    at: str


class NodeAnswersAgain(Value):
    """The node answers again after `silence_s` seconds without a heartbeat; the run goes on."""

    kind: Literal["node_answers_again"] = "node_answers_again"
    time: Time
    rank: Rank
    silence_s: float


class DiskFull(Value):
    """A file of the run on the node cannot be written, `text` names it and why; the job goes on."""

    kind: Literal["disk_full"] = "disk_full"
    time: Time
    rank: Rank
    text: str


class NodeUnreachable(Value):
    """ssh did not reach the node, so its worker was not started."""

    kind: Literal["node_unreachable"] = "node_unreachable"
    time: Time
    rank: Rank
    reason: str


class Evidence(Value):
    """The state of a lost node as `source` (a command or a file) showed it at the time."""

    kind: Literal["evidence"] = "evidence"
    time: Time
    rank: Rank
    node: NodeName
    source: Text
    text: str


class NodeLost(Value):
    """The node's worker ended without a report, does not answer, or did not stop in time."""

    kind: Literal["node_lost"] = "node_lost"
    time: Time
    rank: Rank
    reason: str


class NodeGone(Value):
    """No process of the run is left on the node, or the node cannot be reached any more."""

    kind: Literal["node_gone"] = "node_gone"
    time: Time
    rank: Rank
    reason: str


class StopAsked(Value):
    """A client stops the run."""

    kind: Literal["stop_asked"] = "stop_asked"
    time: Time
    reason: str


class DurationOver(Value):
    """The run's max_duration, in seconds, is over."""

    kind: Literal["duration_over"] = "duration_over"
    time: Time
    seconds: Whole


class HeadEnding(Value):
    """The head, of rank `head_rank` if the run uses it, shuts down, or the unit is stopped."""

    kind: Literal["head_ending"] = "head_ending"
    time: Time
    head_rank: Rank | None = 0


class SupervisorResumed(Value):
    """The supervisor was killed, and another one has taken the run up."""

    kind: Literal["supervisor_resumed"] = "supervisor_resumed"
    time: Time


class FollowedFailure(Value):
    """Nodes whose jobs failed after the first failure, in the same way."""

    nodes: tuple[NodeName, ...]
    text: str


class RunFinished(Value):
    """The run is over, and no process of it is left on any node.

    `followed` are failures after the first, which is the reason.
    """

    kind: Literal["run_finished"] = "run_finished"
    time: Time
    status: Literal["done", "failed", "stopped"]
    exit_code: ExitCode
    first_failed_rank: Rank | None
    reason: str
    followed: tuple[FollowedFailure, ...] = ()


class PoweringOff(Value):
    """The nodes power off, because the run has `on_stop: destroy` and no client destroys them."""

    kind: Literal["powering_off"] = "powering_off"
    time: Time


class SupervisorLost(Value):
    """The supervisor ended before the run did; each node ends its part of the run by itself.

    `reason` says more, if the head knows more (`the head was rebooted …`).
    """

    kind: Literal["supervisor_lost"] = "supervisor_lost"
    time: Time
    reason: str = ""


class HeadUnreachable(Value):
    """The head does not answer this client since `seconds`; the run may go on.

    It comes from the client, and is in no journal.
    """

    kind: Literal["head_unreachable"] = "head_unreachable"
    time: Time
    seconds: float
    reason: str


Event = (
    RunQueued
    | RunStarted
    | NodePrepared
    | NodeNotPrepared
    | NodeStarted
    | NodeReady
    | NodeNotReady
    | RankStarted
    | NetworkSeen
    | OutputJudged
    | CaseStarted
    | GateJudged
    | TableWritten
    | Output
    | NodeExamined
    | OutputDropped
    | NodeExited
    | NodeStopped
    | NodeInterrupted
    | NodeAnswersAgain
    | DiskFull
    | GpusIdle
    | ClockSet
    | NodeUnreachable
    | NodeLost
    | Evidence
    | NodeGone
    | StopAsked
    | DurationOver
    | HeadEnding
    | SupervisorResumed
    | OutputStopped
    | StartupOver
    | AttemptEnded
    | WaitingForNodes
    | NodesHealed
    | NodesLeftOut
    | AttemptStarted
    | RunFinished
    | LeaseEnding
    | Notified
    | NotificationsEnded
    | PoweringOff
    | SupervisorLost
    | HeadUnreachable
)

FirstEvent = RunQueued | RunStarted
"""The first event of a run's journal."""

_EVENT: TypeAdapter[Any] = TypeAdapter(Annotated[Event, Field(discriminator="kind")])

KINDS = frozenset(event.model_fields["kind"].default for event in get_args(Event))
"""The kinds of events that this version knows."""


def parse_event(line: str | bytes) -> Event | None:
    """Return the event of a journal's line; None for a kind that this version does not know.

    For a malformed event of a known kind it returns a warning about it, which the run reports.
    Raises ValueError for a line that is not JSON, such as an incomplete one.
    """
    try:
        value = json.loads(line)
    except RecursionError:
        raise ValueError("it is nested too deep") from None
    if not isinstance(value, dict) or not _is_known(value.get("kind")):
        return None
    try:
        event: Event = _EVENT.validate_python(value)
    except ValidationError as error:
        return _malformed(value, error)
    return event


def _is_known(kind: object) -> bool:
    return isinstance(kind, str) and kind in KINDS


def _malformed(value: dict[str, Any], error: ValidationError) -> OutputJudged:
    """Return a warning that names the event's kind and the first wrong field, not its value."""
    wrong = first_mistake(error, above=1)
    try:
        at = _Place.model_validate(value)
    except ValidationError:
        at = _Place()
    return OutputJudged(
        time=at.time,
        rank=at.rank,
        level="warning",
        text=f"the head sent a malformed event `{value['kind']}`, which is left out: {wrong};"
        " the head may have another version of gpuctl",
    )


class _Place(Value):
    """Time and rank of an event, for a warning about it."""

    time: Time = 0.0
    rank: Rank = 0
