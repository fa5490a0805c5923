"""`gpuctl status`: what exists, whatever happened to the commands that made it."""

from collections import Counter
from typing import TYPE_CHECKING, Annotated

import typer

from cli.plan import JsonOption
from cli.session import session

if TYPE_CHECKING:
    from provision.status import ClusterStatus


def status(
    context: typer.Context,
    cluster: Annotated[str | None, typer.Argument(help="One cluster; by default all.")] = None,
    as_json: JsonOption = False,
) -> None:
    """Show the clusters that exist, their nodes, and what they have cost so far."""
    from dataclasses import asdict

    from cli.terminal import say, say_json, warn
    from config.errors import InputError
    from provision.records.record import unreadable

    here = session(context)
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
    for complaint in unreadable(here.remembered()):
        warn(str(complaint))
    if as_json:
        say_json([asdict(each) for each in found])
    elif not found:
        say("No cluster exists.")
    for each in found if not as_json else ():
        say("\n".join(lines(each)))


def lines(cluster: "ClusterStatus") -> list[str]:
    """One cluster as text."""
    from cli.terminal import money

    rate = "" if cluster.hourly_usd is None else f", {money(cluster.hourly_usd)} per hour"
    spent = "" if cluster.spent_usd is None else f", about {money(cluster.spent_usd)} so far"
    since = f" since {cluster.since}" if cluster.since else ""
    text = [f"{cluster.name}: {cluster.state}{since}{rate}{spent}"]
    for node in cluster.nodes:
        where = f"{node.private_ip or '-':<15}  {node.instance_id}"
        text.append(f"  {node.name:<8} {node.state:<14} {where}")
    if cluster.others:
        kinds = Counter(other.rpartition(" ")[0] for other in cluster.others)
        text.append("  beside them: " + ", ".join(f"{n} x {kind}" for kind, n in kinds.items()))
    text += [f"  ! {problem}" for problem in cluster.problems]
    return text
