"""Mounts: scratch disks and shared storage are there."""

from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, AllFacts, Deviation, Rule, from_checks


def check(_: str, facts: NodeFacts, __: AllFacts) -> list[Deviation]:
    """Return the folders on which nothing is mounted."""
    return from_checks(facts, *(name for name in facts.checks or () if name.startswith("/")))


RULE = Rule(
    id="mounts",
    reads="`mountpoint`",
    expects="`storage.scratch` and `storage.shared` mounted",
    severity="reboot",
    remedy=f"`mount -a` on the node, or {REBOOT}",
    source="docs/do/storage.md",
    check=check,
)
