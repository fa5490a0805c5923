"""Throttling: no GPU runs slower because of its temperature or its power supply."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each GPU that is slowed down now."""
    for gpu, reasons in facts.slowdowns.items():
        yield Deviation(f"slowdown of GPU {gpu}", "none", "; ".join(reasons))


RULE = Rule(
    id="throttling",
    reads="`nvidia-smi --query-gpu=clocks_event_reasons.…` (hw_slowdown, hw_thermal_slowdown,"
    " hw_power_brake_slowdown, sw_thermal_slowdown)",
    expects="no slowdown at this moment",
    severity="watch",
    remedy="check again under load; `gpuctl bisect` measures whether the node is slow, then replace"
    " it",
    source="nvidia-smi(1), Clocks Event Reasons; Azure NHC, check_gpu_clock_throttling",
    check=check,
)
