"""Node-to-node ssh: the head reaches every node, as the start of a run requires."""

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule


def check(name: str, _: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return the head's complaint about this node."""
    if name not in fleet.unreached:
        return []
    return [Deviation("ssh from the head", "a login", fleet.unreached[name])]


RULE = Rule(
    id="node-ssh",
    reads="`ssh ADDRESS true` on the head, for every other node",
    expects="a login",
    severity="isolate",
    remedy="`gpuctl up` renews keys and names; the security group and the image's firewall must let"
    " nodes reach each other",
    source="docs/look-up/modes.md",
    check=check,
)
