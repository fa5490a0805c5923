"""Names: every node's name is its address, on every node."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield each name of a node that this node does not know, or knows with another address."""
    if facts.names is None:
        return
    for name, address in fleet.expected.addresses.items():
        seen = facts.names.get(name, "nothing")
        if seen != address:
            yield Deviation(f"address of {name}", address, seen)


RULE = Rule(
    id="names",
    reads="`getent hosts`",
    expects="the private address of each node of the cluster",
    severity="isolate",
    remedy="`gpuctl up` writes the names again",
    source="docs/develop/node-health.md",
    check=check,
)
