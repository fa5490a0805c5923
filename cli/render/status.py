"""The status of a cluster as text."""

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from config.duration import format_duration
from config.quantities import money

if TYPE_CHECKING:
    from operations.status import ClusterStatus


def status_lines(cluster: "ClusterStatus") -> list[str]:
    """Return the lines about one cluster."""
    rate = "" if cluster.hourly_usd is None else f", {money(cluster.hourly_usd)} per hour"
    spent = "" if cluster.spent_usd is None else f", about {money(cluster.spent_usd)} so far"
    since = f" since {cluster.since}" if cluster.since else ""
    text = [f"{cluster.name}: {cluster.state}{since}{rate}{spent}"]
    if cluster.ends is not None:
        text.append(f"  {_lease(cluster)}")
    for node in cluster.nodes:
        where = f"{node.private_ip or '-':<15}  {node.instance_id}"
        text.append(f"  {node.name:<8} {node.state:<14} {where}")
    if cluster.others:
        kinds = Counter(other.rpartition(" ")[0] for other in cluster.others)
        text.append("  other resources: " + ", ".join(f"{n} x {kind}" for kind, n in kinds.items()))
    text += [f"  uses {resource}" for resource in cluster.uses]
    text += [f"  ! {problem}" for problem in cluster.problems]
    return text


def _lease(cluster: "ClusterStatus") -> str:
    """Return when the cluster ends by itself, in words."""
    assert cluster.ends is not None
    idle = "" if cluster.idle_s is None else f", or after {format_duration(cluster.idle_s)} idle"
    return f"ends by itself at {datetime.fromisoformat(cluster.ends):%Y-%m-%d %H:%M} UTC{idle}"
