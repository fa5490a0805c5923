"""`gpuctl status`: the clusters that exist, also those of interrupted commands."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import clusters as known_clusters
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from provision.status import ClusterStatus


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
    from dataclasses import asdict

    from config.errors import InputError
    from provision.records.record import record_errors

    here, out = chosen_target(context), output(context)
    found: tuple[ClusterStatus, ...] = ()
    if not here.is_lab_down():
        from provision.status import clusters

        found = clusters(here.target())
    if cluster is not None:
        found = tuple(c for c in found if c.name == cluster)
        if not found:
            raise InputError(f"no cluster '{cluster}' exists", "see `gpuctl status` for all")
        if found[0].state == "elsewhere":
            raise InputError(f"cluster '{cluster}': {found[0].problems[0]}", "")
    for complaint in record_errors(here.remembered()):
        out.warn(str(complaint))
    text = [line for each in found for line in lines(each)] or ["No cluster exists."]
    out.show([asdict(each) for each in found], text)


def lines(cluster: "ClusterStatus") -> list[str]:
    """Return the lines about one cluster."""
    from config.quantities import money

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
    from datetime import datetime

    from config.duration import format_duration

    assert cluster.ends is not None
    idle = "" if cluster.idle_s is None else f", or after {format_duration(cluster.idle_s)} idle"
    return f"ends by itself at {datetime.fromisoformat(cluster.ends):%Y-%m-%d %H:%M} UTC{idle}"
