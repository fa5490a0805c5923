"""Software: NCCL, nccl-tests, EFA's installer, NCCL's plugin and Open MPI, as a job finds them."""

from provision.health.facts import UNCHECKED, NodeFacts
from provision.health.model import AllFacts, Deviation, Rule, from_checks

SUBJECTS = (
    "NCCL",
    "nccl-tests",
    "libraries of nccl-tests",
    "EFA installer",
    "NCCL plugin for EFA",
    "Open MPI",
)


def check(_: str, facts: NodeFacts, __: AllFacts) -> list[Deviation]:
    """Return what the node's checks found, and that they could not run."""
    return from_checks(facts, *SUBJECTS, UNCHECKED)


RULE = Rule(
    id="software",
    reads="`/opt/gpuctl/verify`: ldd of nccl-tests in a login, dlopen of the plugin, versions",
    expects="the versions of the cluster file, and no missing library",
    severity="isolate",
    remedy="install it, or name an image that has it and repeat `gpuctl up`",
    source="docs/do/software.md",
    check=check,
)
