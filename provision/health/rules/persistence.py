"""Persistence mode: the driver keeps the GPUs initialized between jobs."""

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, __: AllFacts) -> list[Deviation]:
    """Return how many GPUs have it off."""
    off = [gpu for gpu in facts.gpus or () if not gpu.is_persistent]
    seen = f"disabled on {len(off)} of {len(facts.gpus or ())} GPUs"
    return [Deviation("persistence mode", "enabled", seen)] if off else []


RULE = Rule(
    id="persistence",
    reads="`nvidia-smi --query-gpu=persistence_mode`",
    expects="enabled on every GPU",
    severity="watch",
    remedy="`nvidia-smi -pm 1` on the node",
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 0",
    check=check,
)
