"""The values of a run's state machine: events, actions, the verdict and the state.

decisions.py has what follows from an event, verdicts.py what it means for the run's end.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.agent.nodes import Nodes

ENDED_FROM_OUTSIDE = (128 + 15, 128 + 9)  # by SIGTERM or SIGKILL, as in a shutdown
TIMED_OUT = 124  # as timeout(1): a limit of the run file was reached
WRONG_RUN = 1  # the ranks or the network are not as planned, or data are wrong
NODE_FAILED = 125  # a node failed, not the job
STOPPED = 130  # as a shell reports Ctrl-C


class Event:
    """An event of the run."""


@dataclass(frozen=True)
class NodeEvent(Event):
    """An event on a node."""

    rank: int


class Prepared(NodeEvent):
    """The node's worker is ready to start the job."""


@dataclass(frozen=True)
class NotPrepared(NodeEvent):
    """The node's worker cannot run the job."""

    reason: str


class Ready(NodeEvent):
    """The node's job is ready: nodes that wait for it may start."""


@dataclass(frozen=True)
class NotReady(NodeEvent):
    """The node's job did not become ready in time."""

    reason: str


@dataclass(frozen=True)
class RankStarted(NodeEvent):
    """A launcher started rank `process` of `size` on the node."""

    process: int
    size: int


@dataclass(frozen=True)
class NetworkFault(NodeEvent):
    """The node's output shows a network other than the run's preset promises."""

    reason: str


@dataclass(frozen=True)
class Exited(NodeEvent):
    """The node's job ended, by itself or because it was stopped."""

    code: int


@dataclass(frozen=True)
class Lost(NodeEvent):
    """The run has lost the node; `reason` is the symptom ("has not answered for …").

    Gone follows when the supervisor has given up the node's worker.
    """

    reason: str


@dataclass(frozen=True)
class Gone(NodeEvent):
    """No process of the run is left on the node, or the node cannot be reached any more."""

    reason: str


@dataclass(frozen=True)
class Interrupted(NodeEvent):
    """AWS's notice that it reclaims the node's spot instance: `action` (terminate) and its time."""

    action: str
    at: str


@dataclass(frozen=True)
class HeadEnding(Event):
    """The supervisor's unit got SIGTERM, as in a shutdown of the head.

    `rank` is the head's, None if the run does not use that node.
    """

    rank: int | None = 0


@dataclass(frozen=True)
class StopAsked(Event):
    """A client stops the run."""

    reason: str


@dataclass(frozen=True)
class DurationOver(Event):
    """The run's max_duration is over."""

    seconds: int


@dataclass(frozen=True)
class OutputStopped(Event):
    """No node has printed a line for `seconds`, the run's no_output_timeout."""

    seconds: int


@dataclass(frozen=True)
class StartupOver(Event):
    """The run's startup_timeout of `seconds` is over."""

    seconds: int


class Action:
    """An action that the supervisor executes."""


@dataclass(frozen=True)
class Start(Action):
    """Start the node's job."""

    rank: int


@dataclass(frozen=True)
class Stop(Action):
    """End the node's job gracefully, and its worker."""

    rank: int


@dataclass(frozen=True)
class Finish(Action):
    """End the run: no process of it is left on any node."""


@dataclass(frozen=True)
class Verdict:
    """The end of the run. The first verdict wins; only `done` may still turn into a failure.

    `is_jobs_own` means that the job ended by itself with a status other than 0. `cause` is one
    of those that a run file may retry (config/run/retry.py), else empty.
    """

    status: str
    exit_code: int
    first_failed_rank: int | None
    reason: str
    is_jobs_own: bool = False
    cause: str = ""


@dataclass(frozen=True)
class State:
    """The input of all decisions. `nodes` are in rank order."""

    startup_order: str
    stop_criteria: str
    nodes: Nodes
    verdict: Verdict | None = None
    waves: int = 0  # number of waves of nodes that were started, at most two
    stop_sent: bool = False  # every node got its Stop

    @property
    def first_wave(self) -> range:
        """The ranks that start first; the others wait for them."""
        ranks = range(len(self.nodes))
        if self.startup_order == "master-first":
            return ranks[:1]
        if self.startup_order == "workers-first" and len(self.nodes) > 1:
            return ranks[1:]
        return ranks


def is_over(state: State) -> bool:
    """Return whether no process of the run is left on any node."""
    return state.nodes.count("gone") == len(state.nodes)
