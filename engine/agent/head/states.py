"""The values of a run's state machine: actions and the state.

phases.py has the phases, decisions.py what follows from an event, verdicts.py what it means for the
run's end.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.agent.head.nodes import Nodes
from engine.agent.head.phases import RUN, next_phase
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
    """The input of all decisions, about the present attempt. `nodes` are in rank order.

    `verdict` is that of the attempt, from the first event that ends it on. `ending` is the run's,
    if an event that ends the run has come since: no other attempt follows.
    """

    startup_order: str
    stop_criteria: str
    nodes: Nodes
    phase: str = "preparing"
    verdict: Verdict | None = None
    ending: Verdict | None = None

    def move(self, kind: str) -> State:
        """Return the state after something of this kind."""
        phase = next_phase(RUN, self.phase, kind)
        return self if phase == self.phase else replace(self, phase=phase)

    @property
    def is_over(self) -> bool:
        """Return whether no process of the attempt is left on any node."""
        return self.phase in ("over", "finished")

    @property
    def first_wave(self) -> range:
        """The ranks that start first; the others wait for them."""
        ranks = range(len(self.nodes))
        if self.startup_order == "master-first":
            return ranks[:1]
        if self.startup_order == "workers-first" and len(self.nodes) > 1:
            return ranks[1:]
        return ranks

    @property
    def lost(self) -> frozenset[int]:
        """The ranks that the attempt has lost."""
        return frozenset(rank for rank, node in enumerate(self.nodes) if node.lost is not None)

    @property
    def reclaimed(self) -> frozenset[int]:
        """The ranks of which AWS has announced that it reclaims their instances."""
        return frozenset(rank for rank, node in enumerate(self.nodes) if node.notice)
