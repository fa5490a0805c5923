"""The nodes of a run as immutable values, with the counts that decisions need.

An event changes one node, and no decision searches all nodes: a run of 2048 nodes has ten thousand
events in its first seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

from engine.agent.head.phases import ENDED, NODE, next_phase
from engine.contract.event import NodeEvent
from engine.contract.head_events import NodeLost, NodeUnreachable
from engine.contract.worker_events import NodeExited, NodeInterrupted, NodeStopped, RankStarted


@dataclass(frozen=True)
class NodeState:
    """A node in an attempt; phases.py has its phases.

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
    """All nodes in rank order."""

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
