"""Xid: no error of a GPU or NVSwitch in the kernel's log since the boot."""

from collections.abc import Iterator

from config.xid import gpu_errors
from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule, Severity

SEVERITIES: dict[str, Severity] = {"replace": "isolate", "reboot": "reboot", "reset": "reset"}
"""The severity of each action of the table of Xid errors; the others are for watching."""


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each distinct error, the gravest first."""
    for error in gpu_errors(facts.kernel_log or ()):
        yield Deviation(
            f"kernel log of {error.address}",
            "no error",
            f"{error.label}, {error.xid.meaning}",
            SEVERITIES.get(error.xid.action, "watch"),
            error.xid.remedy,
        )


RULE = Rule(
    id="xid",
    reads="`dmesg`, or else `journalctl --dmesg --boot`",
    expects="no Xid and no SXid since the boot; the severity is that of the error",
    severity="isolate",
    remedy="by the error's number: docs/look-up/health-rules.md",
    source="NVIDIA's Xid catalog of 2026-11-26, and AWS's reading of it (config/xid.py)",
    check=check,
    is_short=True,
)
