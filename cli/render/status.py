"""The status of a cluster as text."""

from collections import Counter
from datetime import datetime
from typing import TYPE_CHECKING

from config.duration import format_duration
from config.quantities import age, money

if TYPE_CHECKING:
    from operations.status import ClusterStatus, LastRun


def status_lines(cluster: "ClusterStatus", last_run: "LastRun | None" = None) -> list[str]:
    """Return the lines about one cluster; each part says how old its facts are."""
    rate = "" if cluster.hourly_usd is None else f", {money(cluster.hourly_usd)} per hour"
    spent = "" if cluster.spent_usd is None else f", about {money(cluster.spent_usd)} so far"
    since = f" since {cluster.since}" if cluster.since else ""
    text = [f"{cluster.name}: {cluster.state}{since}{rate}{spent}"]
    if cluster.ends is not None:
        text.append(f"  {_lease(cluster)}")
    if machines := _machines(cluster):
        text.append(f"  {machines}")
    for node in cluster.nodes:
        where = f"{node.private_ip or '-':<15}  {node.instance_id}"
        text.append(f"  {node.name:<8} {node.state:<14} {where}")
    if cluster.others:
        kinds = Counter(other.rpartition(" ")[0] for other in cluster.others)
        text.append("  other resources: " + ", ".join(f"{n} x {kind}" for kind, n in kinds.items()))
    text += [f"  uses {resource}" for resource in cluster.uses]
    if len(cluster.users) > 1:
        text.append(f"  used by {', '.join(cluster.users)}")
    if last_run is not None:
        text.append(f"  {_last_run(last_run)}")
    text += [f"  ! {problem}" for problem in cluster.problems]
    if cluster.as_of is not None:
        text.append(f"  as AWS had it {age(cluster.as_of)}")
    return text


def _machines(cluster: "ClusterStatus") -> str:
    """Return how many nodes run, of what type and where."""
    types = Counter(node.type for node in cluster.nodes if node.type)
    if not types:
        return ""
    kinds = ", ".join(f"{count} x {name}" for name, count in types.items())
    running = sum(node.state == "running" for node in cluster.nodes)
    zones = ", ".join(sorted({node.zone for node in cluster.nodes if node.zone}))
    return f"{running} of {len(cluster.nodes)} nodes run: {kinds} in {zones or cluster.region}"


def _last_run(last: "LastRun") -> str:
    """Return the newest run, and when this machine last heard of it or when it ended."""
    record = last.record
    if last.heard is not None:
        return f"last run {record.run_id}: {record.status}, heard of {age(last.heard)}"
    code = "" if record.exit_code is None else f", exit code {record.exit_code}"
    ended = "" if record.ended is None else f", ended {age(record.ended)}"
    return f"last run {record.run_id}: {record.status}{code}{ended}"


def _lease(cluster: "ClusterStatus") -> str:
    """Return when the cluster ends by itself, in words."""
    assert cluster.ends is not None
    idle = "" if cluster.idle_s is None else f", or after {format_duration(cluster.idle_s)} idle"
    return f"ends by itself at {datetime.fromisoformat(cluster.ends):%Y-%m-%d %H:%M} UTC{idle}"
