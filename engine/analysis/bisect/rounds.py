"""The plan of a bisect: which nodes are measured together, in which run. Nothing here does I/O.

Nodes are numbers, the ranks of the runs. A round is one run. It has steps, one after the other; a
step has lanes, side by side on different nodes; a lane has trials, one after the other.
Others measure pairs at random, and each suspect again with a node that was good (the second pass of
Google's cluster health scanner, https://github.com/GoogleCloudPlatform/cluster-health-scanner,
2026-11-22). Here every pair is measured once, so a pair that is slow only together is found too.
"""

from collections.abc import Iterator
from typing import Literal

from config.models import Value

MOST_NODES = 64
"""With more nodes the pairs would take hours."""

TRIAL_S, RUN_S = 6.0, 8.0
"""Estimated seconds of a trial (start of mpirun and NCCL, then the sizes) and of a run's start."""
LIMIT_S = 60
"""Seconds after which a trial is ended, and counts as 0 GB/s."""


class Trial(Value):
    """One program of nccl-tests on these nodes; a broadcast goes from the first to the second."""

    collective: Literal["all_reduce", "broadcast"]
    nodes: tuple[int, ...]


Lane = tuple[Trial, ...]
Step = tuple[Lane, ...]


class Round(Value):
    """One run of a bisect."""

    title: str
    steps: tuple[Step, ...]

    @property
    def trials(self) -> tuple[Trial, ...]:
        """All trials in order."""
        return tuple(trial for step in self.steps for lane in step for trial in lane)

    @property
    def seconds(self) -> float:
        """The estimated time of the run, if no trial reaches its limit."""
        return RUN_S + sum(TRIAL_S * max(map(len, step)) for step in self.steps)

    @property
    def most_seconds(self) -> int:
        """The time after which the run is ended."""
        return 120 + sum((LIMIT_S + 10) * max(map(len, step)) for step in self.steps)


def first_rounds(nodes: int, gpus: int) -> tuple[Round, ...]:
    """Return the rounds before the last one: each node alone, then all pairs by halving.

    Nodes with one GPU, or none, are not measured alone: they have no NVLink.
    """
    alone: Step = tuple((Trial(collective="all_reduce", nodes=(node,)),) for node in range(nodes))
    return (*((Round(title="alone", steps=(alone,)),) if gpus > 1 else ()), *_halvings(nodes))


def count_runs(nodes: int, gpus: int) -> int:
    """Return the number of runs of the whole plan, the last one included."""
    return len(first_rounds(nodes, gpus)) + 1


def last_round(nodes: int, suspect: tuple[int, ...], pairs: tuple[tuple[int, int], ...]) -> Round:
    """Return the round of the rings: of all nodes, and without the suspect (its last node).

    `pairs` are suspects, or a suspect and a good node: they are measured twice more, so that a
    moment of other load names nobody.
    """
    rings = [tuple(range(nodes))]
    if suspect and nodes > 2:
        rings.append(tuple(node for node in range(nodes) if node != suspect[-1]))
    steps: list[Step] = [((Trial(collective="all_reduce", nodes=ring),),) for ring in rings]
    steps += [(_both_ways(*pair),) for pair in pairs for _ in range(2)]
    return Round(title="rings", steps=tuple(steps))


def _halvings(nodes: int) -> Iterator[Round]:
    """Yield a round per halving: all pairs of the two halves of every group.

    The first group has all nodes. Its halves are the groups of the next round, so that after
    log2(nodes) rounds every pair was measured. No step uses a node twice.
    """
    groups = [list(range(nodes))]
    while any(len(group) > 1 for group in groups):
        halves = [
            (group[: (len(group) + 1) // 2], group[(len(group) + 1) // 2 :]) for group in groups
        ]
        shifts = max(len(larger) for larger, smaller in halves if smaller)
        steps = tuple(
            tuple(lane for larger, smaller in halves for lane in _lanes(larger, smaller, shift))
            for shift in range(shifts)
        )
        yield Round(title="pairs", steps=steps)
        groups = [half for both in halves for half in both if half]


def _lanes(larger: list[int], smaller: list[int], shift: int) -> Iterator[Lane]:
    """Yield the pairs of one step between two halves; the larger one may have a node more."""
    if shift < len(larger):
        for place, node in enumerate(larger):
            other = (place + shift) % len(larger)
            if other < len(smaller):
                yield _both_ways(node, smaller[other])


def _both_ways(node: int, other: int) -> Lane:
    return (
        Trial(collective="broadcast", nodes=(node, other)),
        Trial(collective="broadcast", nodes=(other, node)),
    )
