"""Clock: the node's time is that of the others and of this machine."""

from provision.health.facts import NodeFacts
from provision.health.model import AllFacts, Deviation, Rule, Severity

_OFF_S = 1.0
_FAR_OFF_S = 30.0
"""AWS refuses signed requests at 5 minutes; logs and checkpoints are out of order before."""


def check(name: str, _: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a clock that is off the middle one of all nodes and this machine."""
    off = fleet.offsets.get(name, 0.0) - _middle([0.0, *fleet.offsets.values()])
    if abs(off) < _OFF_S:
        return []
    seen = f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"
    severity: Severity | None = None if abs(off) >= _FAR_OFF_S else "watch"
    return [Deviation("clock", "within 1 s of the others", seen, severity)]


def _middle(offsets: list[float]) -> float:
    """Return the middle one; of two middle ones that which is nearer to this machine's clock."""
    ordered, half = sorted(offsets), len(offsets) // 2
    if len(ordered) % 2:
        return ordered[half]
    return min(ordered[half - 1 : half + 1], key=abs)


RULE = Rule(
    id="clock",
    reads="`date`, with the time that the question took",
    expects="at most 1 s off the middle of all clocks; from 30 s on no job should use the node",
    severity="reboot",
    remedy="`systemctl restart chronyd` (or `chrony`) on the node sets the clock; if it drifts"
    " again, reboot the node",
    source="EC2 User Guide, Amazon Time Sync Service (169.254.169.123; from memory)",
    check=check,
    is_short=True,
)
