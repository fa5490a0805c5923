"""The events that the head writes into the journal, and those that a client adds."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Literal, Optional

from config.bounds import ExitCode, Port, Rank, Text, Time, Whole
from config.identifiers import ClusterName, NodeName, RunId, RunName, SshHost
from engine.contract.event import Event, NodeEvent, internal
from engine.contract.plan import HangAction, Sweep
from engine.contract.table import Facts, Row, TableRank
from engine.contract.verdict import Status


@dataclass(frozen=True)
class RunNode:
    """A node of the run."""

    rank: Rank
    name: NodeName
    private_ip: SshHost
    role: Text


@dataclass(frozen=True, eq=False, repr=False)
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
    owner: Text = ""
    stop_grace_s: Whole = 10
    time: Time = 0.0
    boot_id: str = internal("")
    clock: Optional[float] = internal(None)


@dataclass(frozen=True, eq=False, repr=False)
class RunStarted(Event):
    """The supervisor has the plan. `nodes` are in rank order.

    It has what a client that did not start the run needs to end it: `on_stop`, `stop_grace_s`, and
    `outputs`, the patterns of files to fetch. `saved` is as in LaunchPlan. `notifies`: the journal
    ends with `notifications_ended`. `boot_id` is that of the head, `clock` the offset of the run's
    RunClock.
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
    owner: Text = ""
    stop_grace_s: Whole = 10
    time: Time = 0.0
    boot_id: str = internal("")
    clock: Optional[float] = internal(None)


@dataclass(frozen=True, eq=False, repr=False)
class StopAsked(Event):
    """A client stops the run."""

    kind = "stop_asked"
    reason: str
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class DurationOver(Event):
    """The run's max_duration, in seconds, is over."""

    kind = "duration_over"
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class OutputStopped(Event):
    """No node has printed a line for `seconds`, the run's no_output_timeout."""

    kind = "output_stopped"
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class HangJudged(Event):
    """The job's ranks were examined, because no node had printed a line for some time.

    `text` is the verdict in one line. `rank` is the node of the ranks that it names, None if it
    names none or those of several nodes.
    """

    kind = "hang_judged"
    rank: Optional[Rank]
    text: str
    action: HangAction
    time: Time = 0.0

    @property
    def level(self) -> Literal["warning", "fault"]:
        """Return whether the run goes on."""
        return "warning" if self.action == "report" else "fault"


@dataclass(frozen=True, eq=False, repr=False)
class StartupOver(Event):
    """The run's startup_timeout, in seconds, is over; the job may have started in time."""

    kind = "startup_over"
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class HeadEnding(Event):
    """The head, of rank `head_rank` if the run uses it, shuts down, or the unit is stopped."""

    kind = "head_ending"
    head_rank: Optional[Rank] = 0
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class SupervisorResumed(Event):
    """The supervisor was killed, and another one has taken the run up."""

    kind = "supervisor_resumed"
    time: Time = 0.0


@dataclass(frozen=True)
class FollowedFailure:
    """Nodes whose jobs failed after the first failure, in the same way."""

    nodes: tuple[NodeName, ...]
    text: str


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
class PoweringOff(Event):
    """The nodes power off, because the run has `on_stop: destroy` and no client destroys them."""

    kind = "powering_off"
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class SupervisorLost(Event):
    """The supervisor ended before the run did; each node ends its part of the run by itself.

    `reason` says more, if the head knows more (`the head was rebooted …`).
    """

    kind = "supervisor_lost"
    reason: str = ""
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class HeadUnreachable(Event):
    """The head does not answer this client since `seconds`; the run may go on.

    It comes from the client, and is in no journal.
    """

    kind = "head_unreachable"
    seconds: float
    reason: str
    time: Time = 0.0


# The attempts of a run


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
class WaitingForNodes(Event):
    """The next attempt starts when these lost nodes are back; the run waits so many seconds."""

    kind = "waiting_for_nodes"
    nodes: tuple[NodeName, ...]
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NodesHealed(Event):
    """A client made lost nodes again; `addresses` are their private addresses, by names."""

    kind = "nodes_healed"
    addresses: dict[NodeName, SshHost]
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NodesLeftOut(Event):
    """These lost nodes did not come back in time: the run goes on with the `left` other ones."""

    kind = "nodes_left_out"
    nodes: tuple[NodeName, ...]
    left: Whole
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
class NodeAnswersAgain(NodeEvent):
    """The node answers again after `silence_s` seconds without a heartbeat; the run goes on."""

    kind = "node_answers_again"
    silence_s: float
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class GpusIdle(NodeEvent):
    """The GPUs of the node have had no work for `seconds`; it comes once for each such stretch."""

    kind = "gpus_idle"
    gpus: tuple[int, ...]
    seconds: Whole
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NodeUnreachable(NodeEvent):
    """ssh did not reach the node, so its worker was not started."""

    kind = "node_unreachable"
    reason: str
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NodeLost(NodeEvent):
    """The node's worker ended without a report, does not answer, or did not stop in time.

    `node_gone` follows when the supervisor has given up the node's worker. `symptom` is what the
    run's verdict says, if that is not `reason` ("was lost: …").
    """

    kind = "node_lost"
    reason: str
    time: Time = 0.0
    symptom: str = internal("")


@dataclass(frozen=True, eq=False, repr=False)
class Evidence(NodeEvent):
    """The state of a lost node as `source` (a command or a file) showed it at the time."""

    kind = "evidence"
    node: NodeName
    source: Text
    text: str
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NodeGone(NodeEvent):
    """No process of the run is left on the node, or the node cannot be reached any more."""

    kind = "node_gone"
    reason: str
    time: Time = 0.0


# The output, and what the supervisor reads from it


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


@dataclass(frozen=True, eq=False, repr=False)
class OutputDropped(Event):
    """Output that was removed because the journal was over its budget.

    It was at the offsets `start` to `end` of the journal. Without `ranks`, a client left other
    events out (engine/record/journal_copy.py).
    """

    kind = "output_dropped"
    start: Whole
    end: Whole
    ranks: tuple[DroppedOutput, ...]
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class NetworkSeen(NodeEvent):
    """A finding about the network that the node `rank` uses, in one line.

    `proof`: it is the network that the run's preset promises; `warning`: it is not, but the run
    goes on; `fault`: it is not, and the run fails.
    """

    kind = "network_seen"
    level: Literal["proof", "warning", "fault"]
    text: str
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
class LeaseEnding(Event):
    """The cluster's lifetime ends soon, `at` this time: its nodes power off then."""

    kind = "lease_ending"
    at: Time
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
class BudgetNearing(Event):
    """The cluster has cost `spent_usd` of `max_usd` dollars, and reaches those at the time `at`."""

    kind = "budget_nearing"
    spent_usd: float
    max_usd: float
    at: Time
    time: Time = 0.0


@dataclass(frozen=True, eq=False, repr=False)
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


@dataclass(frozen=True, eq=False, repr=False)
class NotificationsEnded(Event):
    """After the end of the run: no notification is on its way any more."""

    kind = "notifications_ended"
    time: Time = 0.0
