"""NVLink: every link of every GPU is up, on types with NVSwitch."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import REBOOT, AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield each GPU with links that are down."""
    for gpu, links in facts.nvlinks.items():
        if links < fleet.expected.nvlinks:
            yield Deviation(f"NVLinks of GPU {gpu}", f"{fleet.expected.nvlinks} up", str(links))


RULE = Rule(
    id="nvlink",
    reads="`nvidia-smi nvlink --status`",
    expects="12 links up for each A100, 18 for H100, H200, B200 and B300, with NVSwitch",
    severity="reset",
    remedy=f"`nvidia-smi --gpu-reset` on the node while no job runs, or {REBOOT}",
    source="awslabs/awsome-distributed-ai @95b939cd, efa-cheatsheet.md and healthcheck, check 3",
    check=check,
)
