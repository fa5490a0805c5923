"""Locked memory: a job may register its buffers with EFA."""

import math

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule

_LEAST_KIB = 16 * 1024 * 1024


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a limit below 16 GiB, on nodes with EFA."""
    limit = facts.memlock_kib
    if not fleet.expected.efa or limit is None or limit >= _LEAST_KIB:
        return []
    assert limit < math.inf
    return [Deviation("locked memory", "unlimited, or 16 GiB", f"{limit / 1024:.0f} MiB")]


RULE = Rule(
    id="memlock",
    reads="`ulimit -l` of a login",
    expects="unlimited, or 16 GiB at least, with EFA",
    severity="watch",
    remedy="set `* - memlock unlimited` in /etc/security/limits.d on the node",
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 2",
    check=check,
    is_short=True,
)
