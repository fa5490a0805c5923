"""The state machine of a run as values: the phases of a run and of its nodes, actions, the state.

run_state.py has what follows from an event, verdicts.py what it means for the run's end.

A row of a table of phases is a phase; it names the kinds that end it, each with the next phase. A
kind that a row does not name changes nothing, so phases never go back; only the next attempt begins
with the nodes anew.

A node's kinds are those of its events, and `start`: the supervisor starts its job. A run's kinds
are those of the events of its beginning and its end, and what run_state.py finds in its nodes:

| kind | meaning |
| --- | --- |
| `all_prepared` | every node can start its job: those of the first wave start |
| `first_ready` | the nodes of the first wave are ready, or have ended: the others start |
| `verdict` | the end of the attempt is known: every node that has not ended stops |
| `all_gone` | no process of the run is left on any node |
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from engine.contract.event import Event, NodeEvent
from engine.contract.head_events import NodeLost, NodeUnreachable
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NodeExited, NodeInterrupted, NodeStopped, RankStarted

Table = dict[str, dict[str, str]]

_ENDS = {"node_exited": "exited", "node_stopped": "exited", "node_gone": "gone"}

NODE: Table = {
    "launching": {"node_prepared": "prepared", "node_ready": "ready", **_ENDS},
    "prepared": {"start": "started", "node_ready": "ready", **_ENDS},
    "started": {"node_ready": "ready", **_ENDS},
    "ready": _ENDS,
    "exited": {"node_gone": "gone"},
    "gone": {},
}
"""The phases of a node in an attempt, from the launch of its worker on."""

_END = {"run_finished": "finished"}  # also of one that was taken up and dropped from the queue

RUN: Table = {
    "queued": {"run_started": "preparing", **_END},
    "preparing": {"all_prepared": "starting", "verdict": "stopping", **_END},
    "starting": {"first_ready": "running", "verdict": "stopping", **_END},
    "running": {"verdict": "stopping", **_END},
    "stopping": {"all_gone": "over", **_END},
    "over": {"attempt_started": "preparing", **_END},
    "finished": {},
}
"""The phases of a run; those from `preparing` to `over` are of each attempt."""

ENDED = ("exited", "gone")
"""The phases of a node whose job has ended."""


def next_phase(table: Table, phase: str, kind: str) -> str:
    """Return the phase after something of this kind."""
    return table[phase].get(kind, phase)


@dataclass(frozen=True)
class NodeState:
    """A node in an attempt, in a phase of NODE.

    `processes` is the number of ranks that a launcher must start here, 0 if gpuctl does not check
    it; `ranks` are those that have begun. `notice` is AWS's notice that it reclaims the instance
    (`terminate at …`), or empty. `is_settled` means that the journal has the end of its job. `lost`
    is why the run has lost the node, None if it has not.
    """

    name: str
    role: str = "worker"
    processes: int = 0
    ranks: frozenset[int] = frozenset()
    phase: str = "launching"
    stop_asked: bool = False
    notice: str = ""
    is_settled: bool = False
    lost: str | None = None

    @property
    def has_ended(self) -> bool:
        """Return whether the job has ended or the node is gone."""
        return self.phase in ENDED

    def move(self, kind: str) -> NodeState:
        """Return the node after something of this kind."""
        phase = next_phase(NODE, self.phase, kind)
        return self if phase == self.phase else replace(self, phase=phase)

    def add(self, event: NodeEvent) -> NodeState:
        """Return the node after its event."""
        if isinstance(event, NodeInterrupted):
            return replace(self, notice=f"{event.action} at {event.at}")
        if isinstance(event, RankStarted):
            return replace(self, ranks=self.ranks | {event.process})
        if isinstance(event, NodeUnreachable):
            return replace(self, lost=event.reason)
        if isinstance(event, NodeLost):
            return replace(self, lost=event.reason, is_settled=True)
        if isinstance(event, NodeStopped) and event.exit_code is None:  # its job never began
            return replace(self, is_settled=True)
        moved = self.move(event.kind)
        ends = isinstance(event, (NodeExited, NodeStopped))
        return replace(moved, is_settled=True) if ends else moved


@dataclass(frozen=True)
class Nodes:
    """All nodes in rank order, with the counts that decisions need.

    An event changes one node, and no decision searches all nodes: a run of 2048 nodes has ten
    thousand events in its first seconds.
    """

    _nodes: tuple[NodeState, ...]
    processes: int  # ranks of all nodes, as planned
    has_workers: bool  # nodes with the role worker
    running_workers: int  # those of them that have not ended
    _phases: dict[str, int] = field(hash=False)

    @classmethod
    def of(cls, nodes: tuple[NodeState, ...]) -> Nodes:
        """Return the nodes with their counts."""
        phases: dict[str, int] = {}
        for node in nodes:
            phases[node.phase] = phases.get(node.phase, 0) + 1
        processes = sum(node.processes for node in nodes)
        workers = [node for node in nodes if node.role == "worker"]
        running = sum(not node.has_ended for node in workers)
        return cls(nodes, processes, bool(workers), running, phases)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[NodeState]:
        return iter(self._nodes)

    def __getitem__(self, rank: int) -> NodeState:
        return self._nodes[rank]

    def count(self, *phases: str) -> int:
        """Return how many nodes are in one of the phases."""
        return sum(self._phases.get(phase, 0) for phase in phases)

    def first_late(self) -> tuple[int, str] | None:
        """Return the first node with a job that is not ready or lacks ranks, and which of both.

        None if the job is ready, or has ended, everywhere.
        """
        for rank, node in enumerate(self._nodes):
            if node.phase not in ("ready", *ENDED):
                return rank, "is not ready"
            if len(node.ranks) < node.processes:
                return rank, f"has {len(node.ranks)} of its {node.processes} ranks"
        return None

    def replace_node(self, rank: int, node: NodeState) -> Nodes:
        """Return the nodes with another node at `rank`."""
        before, phases = self._nodes[rank], self._phases
        if node.phase != before.phase:
            phases = {**phases, before.phase: phases[before.phase] - 1}
            phases[node.phase] = phases.get(node.phase, 0) + 1
        ended = node.role == "worker" and node.has_ended and not before.has_ended
        return replace(
            self,
            _nodes=(*self._nodes[:rank], node, *self._nodes[rank + 1 :]),
            running_workers=self.running_workers - ended,
            _phases=phases,
        )


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
class PassOn(Action):
    """Give the job notice on all nodes: a job saves as a whole."""

    notice: Event


@dataclass(frozen=True)
class Finish(Action):
    """End the run: no process of it is left on any node."""


@dataclass(frozen=True)
class State:
    """The input of all decisions, about the present attempt. `nodes` are in rank order.

    `verdict` is that of the attempt, from the first event that ends it on. `ending` is the run's,
    if an event that ends the run has come since: no other attempt follows. `will_stop`: the job has
    notice that the run is stopped.
    """

    startup_order: str
    stop_criteria: str
    nodes: Nodes
    phase: str = "preparing"
    verdict: Verdict | None = None
    ending: Verdict | None = None
    will_stop: bool = False

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
