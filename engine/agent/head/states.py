"""The values of a run's state machine: actions and the state.

decisions.py has what follows from an event, verdicts.py what it means for the run's end.
"""

from __future__ import annotations

from dataclasses import dataclass

from engine.agent.head.nodes import Nodes
from engine.contract.verdict import Verdict


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
