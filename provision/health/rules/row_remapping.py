"""Row remapping: no faulty row of a GPU's memory waits for its replacement, or has none."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import REPLACE, AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield the gravest state of each GPU: failed, pending, or rows that were replaced."""
    for gpu in facts.remapped:
        of = f"of {gpu.bus}"
        if gpu.has_failed:
            yield Deviation(f"row remapping {of}", "no failure", "failed", "isolate", REPLACE)
        elif gpu.is_pending:
            yield Deviation(f"row remapping {of}", "nothing pending", "pending", "reset")
        elif gpu.uncorrectable:
            rows = f"{gpu.uncorrectable} rows remapped after uncorrectable errors"
            yield Deviation(f"row remapping {of}", "0 rows", rows, "watch", _WATCH)


_WATCH = "nothing now; replace the node if the number grows"

RULE = Rule(
    id="row-remapping",
    reads="`nvidia-smi --query-remapped-rows`",
    expects="no pending and no failed remapping, no row with uncorrectable errors",
    severity="isolate",
    remedy="`nvidia-smi --gpu-reset` on the node while no job runs, or reboot the node: the row is"
    " then replaced",
    source="https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt (from memory)",
    check=check,
)
