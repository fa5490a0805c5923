"""The verdict of a bisect: a pure function of what was measured.

A node's speed as sender is the best that it reaches with any partner, and the same as receiver: a
slow partner, or a moment of other load, does not count against it. A node is slow if that is far
below the median of all nodes. A pair is slow if its two nodes are not, and are far below what both
reach with others.
"Far" is FAR, or more where pairs vary more than their nodes explain: SPREADS times the median
deviation.
"""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from statistics import median
from typing import Literal

from config.models import Value
from engine.analysis.bisect.rounds import Round, Trial, first_rounds, last_round

FAR = 0.2
"""The least shortfall that counts, as a part of the median. With noise of 5 % in either direction
no good node is this far below."""
FARTHEST = 0.75
"""A shortfall that always counts, however much the figures vary."""
SPREADS = 3
MOST_AGAIN = 3
"""How many suspects are measured again."""

How = Literal["alone", "sender", "receiver", "pair"]


class Measurement(Value):
    """A trial and its speed in GB/s (bus bandwidth); 0 with the reason in `error` if it failed."""

    trial: Trial
    gbps: float
    error: str = ""


class SpeedEvidence(Value):
    """One comparison: the speed, and the usual one. `nodes` of a pair are sender and receiver."""

    how: How
    nodes: tuple[int, ...]
    gbps: float
    usual: float

    @property
    def shortfall(self) -> float:
        """The part of the usual speed that is missing, 0 to 1."""
        return 1 - self.gbps / self.usual if self.usual else 0.0


class Suspect(Value):
    """A node, or a pair of nodes, that is slower than the others, with the evidence."""

    nodes: tuple[int, ...]
    evidence: tuple[SpeedEvidence, ...]

    @property
    def shortfall(self) -> float:
        """The largest shortfall."""
        return max(pair.shortfall for pair in self.evidence)


def suspects(measured: Sequence[Measurement]) -> tuple[Suspect, ...]:
    """Return the slow nodes and pairs, slowest first; none if all are alike.

    Speeds in pairs are compared from 3 nodes on: two nodes have one pair.
    """
    by_nodes: dict[tuple[int, ...], list[SpeedEvidence]] = {}
    speeds = node_speeds(measured)
    in_pairs = _compare_pairs(measured, speeds)
    far = _far([pair.gbps / pair.usual for pair in in_pairs])
    for how, of_nodes in speeds.items():
        usual = median(of_nodes.values()) if of_nodes else 0.0
        for node, speed in of_nodes.items():
            evidence = SpeedEvidence(how=how, nodes=(node,), gbps=speed, usual=usual)
            if evidence.shortfall > far:
                by_nodes.setdefault(evidence.nodes, []).append(evidence)
    slow = {node for nodes in by_nodes for node in nodes}
    for pair in in_pairs:
        if pair.shortfall > far and not slow & set(pair.nodes):
            by_nodes.setdefault(tuple(sorted(pair.nodes)), []).append(pair)
    named = (Suspect(nodes=nodes, evidence=tuple(of)) for nodes, of in by_nodes.items())
    return tuple(sorted(named, key=lambda suspect: -suspect.shortfall))


def confirmed(measured: Sequence[Measurement]) -> tuple[Suspect, ...]:
    """Return the suspects after the last round; a pair counts only if it was measured again."""
    times = Counter(tuple(sorted(measurement.trial.nodes)) for measurement in measured)
    both_ways = 2
    return tuple(
        suspect
        for suspect in suspects(measured)
        if len(suspect.nodes) == 1 or times[suspect.nodes] > both_ways
    )


def next_round(nodes: int, gpus: int, done: int, measured: Sequence[Measurement]) -> Round | None:
    """Return the round after `done` rounds, which gave `measured`; None after the last one."""
    first = first_rounds(nodes, gpus)
    if done < len(first):
        return first[done]
    if done > len(first):
        return None
    suspected = suspects(measured)
    slow = {node for suspect in suspected for node in suspect.nodes if len(suspect.nodes) == 1}
    good = next((node for node in range(nodes) if node not in slow), 0)
    again = [test.nodes if len(test.nodes) == 2 else (test.nodes[0], good) for test in suspected]
    pairs = tuple((first, other) for first, other in again[:MOST_AGAIN] if first != other)
    return last_round(nodes, suspected[0].nodes if suspected else (), pairs)


def node_speeds(measured: Sequence[Measurement]) -> dict[How, dict[int, float]]:
    """Return each node's best speed alone, as sender and as receiver, as far as they compare."""
    alone = best(measurement for measurement in measured if len(measurement.trial.nodes) == 1)
    pairs = pair_speeds(measured)
    speeds: dict[How, dict[int, float]] = {
        "alone": {nodes[0]: speed for nodes, speed in alone.items()},
        "sender": {},
        "receiver": {},
    }
    for (sender, receiver), speed in pairs.items() if len(pairs) > 2 else ():
        speeds["sender"][sender] = max(speed, speeds["sender"].get(sender, 0.0))
        speeds["receiver"][receiver] = max(speed, speeds["receiver"].get(receiver, 0.0))
    return speeds


def pair_speeds(measured: Sequence[Measurement]) -> dict[tuple[int, int], float]:
    """Return the best speed of each sender and receiver."""
    of_pairs = best(
        measurement for measurement in measured if measurement.trial.collective == "broadcast"
    )
    return {(nodes[0], nodes[1]): speed for nodes, speed in of_pairs.items()}


def best(measured: Iterable[Measurement]) -> dict[tuple[int, ...], float]:
    """Return the best speed by nodes, of all trials with them."""
    speeds: dict[tuple[int, ...], float] = {}
    for measurement in measured:
        speeds[measurement.trial.nodes] = max(
            measurement.gbps, speeds.get(measurement.trial.nodes, 0.0)
        )
    return speeds


def _compare_pairs(
    measured: Sequence[Measurement], speeds: Mapping[How, Mapping[int, float]]
) -> list[SpeedEvidence]:
    """Return each pair's speed next to what sender and receiver both reach with others."""
    slow = []
    for (sender, receiver), speed in pair_speeds(measured).items() if speeds["sender"] else ():
        usual = min(speeds["sender"][sender], speeds["receiver"][receiver])
        if usual:
            nodes = (sender, receiver)
            slow.append(SpeedEvidence(how="pair", nodes=nodes, gbps=speed, usual=usual))
    return slow


def _far(values: Sequence[float]) -> float:
    """Return which shortfall is large, where pairs reach these parts of their usual speeds.

    A slow node makes its own usual speed slow, so it does not widen `values`; noise does.
    """
    middle = median(values) if values else 0.0
    if not middle:
        return FAR
    deviation = median(abs(value - middle) for value in values) / middle
    return min(FARTHEST, max(FAR, SPREADS * deviation))
