"""DCGM: its diagnostic of level 3 passes on every GPU."""

from collections.abc import Iterator

from provision.health.facts import NodeFacts
from provision.health.model import REPLACE, AllFacts, Deviation, Rule, Severity

_SEVERITIES: dict[int, Severity] = {1: "watch", 5: "watch", 6: "reset"}
"""DCGM's severities MONITOR, CONFIG and RESET: dcgm_errors.h of DCGM 4 (from memory; a published
output of 2026-08 has 5 for persistence mode). All others isolate."""


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each failed test, and a diagnostic without a result."""
    if facts.dcgm_error:
        yield Deviation("DCGM's diagnostic", "a result", facts.dcgm_error)
    for failure in facts.dcgm:
        severity = _SEVERITIES.get(failure.severity)
        yield Deviation(
            f"DCGM's {failure.test} on GPU {failure.gpu}", "passed", failure.text, severity
        )


RULE = Rule(
    id="dcgm",
    reads="`dcgmi diag -r 3 -j`, with an hour as its limit",
    expects="every test passed or skipped",
    severity="isolate",
    remedy=REPLACE,
    source="https://docs.nvidia.com/datacenter/dcgm/latest/user-guide/dcgm-diagnostics.html",
    check=check,
)
