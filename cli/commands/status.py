"""`gpuctl status`: the clusters that exist, also those of interrupted commands."""

from collections import Counter
from dataclasses import asdict
from datetime import datetime
from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import clusters as known_clusters
from cli.options import chosen_target, output
from config import duration
from config.quantities import money
from operations import status as operation

if TYPE_CHECKING:
    from operations.status import ClusterStatus


def status(
    context: typer.Context,
    cluster: Annotated[
        str | None,
        typer.Argument(
            metavar="CLUSTER",
            help="One cluster; by default all.",
            autocompletion=known_clusters,
        ),
    ] = None,
) -> None:
    """Show the clusters that exist, their nodes, and their cost so far.

    $ gpuctl status
    $ gpuctl status demo --json
    """
    here, out = chosen_target(context), output(context)
    found = operation.clusters(here) if cluster is None else operation.cluster(here, cluster)
    for error in operation.record_errors(here):
        out.warn(str(error))
    text = [line for each in found for line in lines(each)] or ["No cluster exists."]
    out.show([asdict(each) for each in found], text)


def lines(cluster: "ClusterStatus") -> list[str]:
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
    text += [f"  ! {problem}" for problem in cluster.problems]
    return text


def _lease(cluster: "ClusterStatus") -> str:
    """Return when the cluster ends by itself, in words."""
    assert cluster.ends is not None
    idle = (
        ""
        if cluster.idle_s is None
        else f", or after {duration.format_duration(cluster.idle_s)} idle"
    )
    return f"ends by itself at {datetime.fromisoformat(cluster.ends):%Y-%m-%d %H:%M} UTC{idle}"
