"""Pairs: no node is slower than the others, alone or with any other."""

from provision.health.facts import NodeFacts
from provision.health.model import REPLACE, AllFacts, Deviation, Rule


def check(name: str, _: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return what the bisect says about the node."""
    if name not in fleet.slow:
        return []
    return [Deviation("speed", "that of the others", fleet.slow[name])]


RULE = Rule(
    id="pairs",
    reads="a [bisect](../do/bisect.md) of the cluster: each node alone, every pair, rings",
    expects="at most 20 % below the median",
    severity="isolate",
    remedy=REPLACE,
    source="docs/do/bisect.md",
    check=check,
)
