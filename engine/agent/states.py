"""The values of a run's state machine: actions, the verdict and the state.

decisions.py has what follows from an event, verdicts.py what it means for the run's end.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.agent.nodes import Nodes
from engine.contract.events import Status

ENDED_FROM_OUTSIDE = (128 + 15, 128 + 9)  # by SIGTERM or SIGKILL, as in a shutdown
TIMED_OUT = 124  # as timeout(1): a limit of the run file was reached
WRONG_RUN = 1  # the ranks or the network are not as planned, or data are wrong
NODE_FAILED = 125  # a node failed, not the job
STOPPED = 130  # as a shell reports Ctrl-C


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

    status: Status
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
