"""EFA: as many devices as the node was launched with."""

from provision.health.facts import NodeFacts
from provision.health.model import REPLACE, AllFacts, Deviation, Rule, from_checks

_SUBJECT = "EFA devices"


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return missing devices.

    libfabric's count decides, which the node's checks repeat for ten seconds: p5en has its devices
    late. Before a run there is only the kernel's, which does not exist in a container.
    """
    if facts.checks is not None or not facts.efa:
        return from_checks(facts, _SUBJECT)
    if facts.efa >= fleet.expected.efa:
        return []
    return [Deviation(_SUBJECT, str(fleet.expected.efa), str(facts.efa))]


RULE = Rule(
    id="efa",
    reads="`fi_info -p efa -t FI_EP_RDM` (three times within 10 s); before a run the devices in"
    " /sys/class/infiniband",
    expects="the number of EFA interfaces of the launch",
    severity="isolate",
    remedy=REPLACE,
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 2",
    check=check,
    is_short=True,
)
