"""Loop-back: the GPUs of one node reach each other through EFA, with right values."""

from statistics import median

from provision.health.facts import NodeFacts
from provision.health.model import REPLACE, AllFacts, Deviation, Rule

_SUBJECT = "all_reduce over the network of one node"
_PART = 0.5
_LEAST_NODES = 3


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a test that failed, or is far slower than that of the others."""
    own = facts.loopback
    if own is None:
        return []
    if own.error:
        return [Deviation(_SUBJECT, "no wrong value", own.error)]
    speeds = [fact.loopback.gbps for fact in fleet.facts.values() if fact.loopback]
    usual = median(speeds)
    if len(speeds) < _LEAST_NODES or own.gbps >= _PART * usual:
        return []
    return [Deviation(_SUBJECT, f"{usual:.3g} GB/s", f"{own.gbps:.3g} GB/s", "watch", _MEASURE)]


_MEASURE = "`gpuctl bisect` measures it again, alone and in pairs"

RULE = Rule(
    id="loopback",
    reads="nccl-tests' all_reduce on the node with NCCL_P2P_DISABLE=1 and NCCL_SHM_DISABLE=1",
    expects="no wrong value; half of the median of three nodes or more is only for watching",
    severity="isolate",
    remedy=REPLACE,
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 5",
    check=check,
)
