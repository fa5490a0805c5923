"""The nodes of a run as decisions see them: values, with what many events ask kept counted.

An event changes one node, and nothing of it is looked for among all the others: a run of 2048
nodes has ten thousand events in its first seconds.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field, replace

ENDED = ("exited", "gone")


@dataclass(frozen=True)
class Node:
    """A node of the run. Phases: launching, prepared, started, ready, exited, gone.

    `processes` is how many ranks a launcher has to start here, 0 where nothing counts them, `ranks`
    are those that have begun. `notice` is AWS's that it takes the instance back (`terminate at …`),
    empty without one.
    """

    name: str
    role: str = "worker"
    processes: int = 0
    ranks: frozenset[int] = frozenset()
    phase: str = "launching"
    stop_asked: bool = False
    notice: str = ""

    @property
    def has_ended(self) -> bool:
        """True when its job has ended, or the node is gone."""
        return self.phase in ENDED


@dataclass(frozen=True)
class Nodes:
    """All nodes in rank order."""

    _nodes: tuple[Node, ...]
    processes: int  # ranks of all nodes, as planned
    has_workers: bool  # nodes with the role worker
    running_workers: int  # those of them that have not ended
    _phases: dict[str, int] = field(hash=False)

    @classmethod
    def of(cls, nodes: tuple[Node, ...]) -> Nodes:
        """Return the nodes, counted."""
        phases: dict[str, int] = {}
        for node in nodes:
            phases[node.phase] = phases.get(node.phase, 0) + 1
        processes = sum(node.processes for node in nodes)
        workers = [node for node in nodes if node.role == "worker"]
        running = sum(not node.has_ended for node in workers)
        return cls(nodes, processes, bool(workers), running, phases)

    def __len__(self) -> int:
        return len(self._nodes)

    def __iter__(self) -> Iterator[Node]:
        return iter(self._nodes)

    def __getitem__(self, rank: int) -> Node:
        return self._nodes[rank]

    def count(self, *phases: str) -> int:
        """Return how many nodes are in one of the phases."""
        return sum(self._phases.get(phase, 0) for phase in phases)

    def changed(self, rank: int, node: Node) -> Nodes:
        """Return the nodes with another one at `rank`."""
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
