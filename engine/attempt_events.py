"""The events of a run's attempts: their ends, waits for nodes, and their starts."""

from typing import Literal

from config.bounds import ExitCode, Rank, Time, Whole
from config.identifiers import NodeName, SshHost
from config.models import Value
from engine.queue_event import RunNode


class OutputStopped(Value):
    """No node has printed a line for `seconds`, the run's no_output_timeout."""

    kind: Literal["output_stopped"] = "output_stopped"
    time: Time
    seconds: Whole


class StartupOver(Value):
    """The run's startup_timeout, in seconds, is over; the job may have started in time."""

    kind: Literal["startup_over"] = "startup_over"
    time: Time
    seconds: Whole


class AttemptEnded(Value):
    """An attempt has failed, and another one follows `pause_s` seconds later.

    `number` of at most `attempts`. No process of the run is left on any node.
    """

    kind: Literal["attempt_ended"] = "attempt_ended"
    time: Time
    number: Whole
    attempts: Whole
    exit_code: ExitCode
    first_failed_rank: Rank | None
    reason: str
    pause_s: Whole


class WaitingForNodes(Value):
    """The next attempt starts when these lost nodes are back; the run waits so many seconds."""

    kind: Literal["waiting_for_nodes"] = "waiting_for_nodes"
    time: Time
    nodes: tuple[NodeName, ...]
    seconds: Whole


class NodesHealed(Value):
    """A client made lost nodes again; `addresses` are their private addresses, by names."""

    kind: Literal["nodes_healed"] = "nodes_healed"
    time: Time
    addresses: dict[NodeName, SshHost]


class NodesLeftOut(Value):
    """These lost nodes did not come back in time: the run goes on with the `left` other ones."""

    kind: Literal["nodes_left_out"] = "nodes_left_out"
    time: Time
    nodes: tuple[NodeName, ...]
    left: Whole


class AttemptStarted(Value):
    """An attempt starts; the first one, with `number` 1, has no such event.

    `nodes` are those of the attempt, in the order of their ranks in it, if their number may change;
    else empty: all nodes of the run.
    """

    kind: Literal["attempt_started"] = "attempt_started"
    time: Time
    number: Whole
    nodes: tuple[RunNode, ...] = ()
