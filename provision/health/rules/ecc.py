"""ECC: no uncorrectable error of a GPU's memory since the driver was loaded."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each GPU with such errors."""
    for gpu in facts.gpus or ():
        if gpu.ecc:
            yield Deviation(f"uncorrectable ECC errors of GPU {gpu.index}", "0", str(gpu.ecc))


RULE = Rule(
    id="ecc",
    reads="`nvidia-smi --query-gpu=ecc.errors.uncorrected.volatile.total`",
    expects="0 uncorrectable errors since the boot",
    severity="reset",
    remedy=f"`nvidia-smi --gpu-reset` on the node while no job runs, or {REBOOT}",
    source="awslabs/awsome-distributed-ai @95b939cd, 2.gpu-cluster-healthcheck, check 0",
    check=check,
    is_short=True,
)
