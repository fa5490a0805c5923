"""Fabric manager: it runs, in the driver's version, on types with NVSwitch."""

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule, from_checks


def check(_: str, facts: NodeFacts, __: AllFacts) -> list[Deviation]:
    """Return what the node's checks found; without it CUDA does not start on such types."""
    return from_checks(facts, "fabric manager version", "fabric manager")


RULE = Rule(
    id="fabric-manager",
    reads="`nv-fabricmanager --version`, `systemctl is-active nvidia-fabricmanager`",
    expects="an active service of exactly the driver's version, with NVSwitch",
    severity="reboot",
    remedy="`systemctl restart nvidia-fabricmanager` on the node; if it fails, install the version"
    " of the driver, or reboot the node",
    source="https://docs.nvidia.com/datacenter/tesla/fabric-manager-user-guide (2026-11-22)",
    check=check,
)
