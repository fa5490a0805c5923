"""`gpuctl down CLUSTER`: nothing of the cluster exists any more."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.plan import JsonOption
from cli.session import confirm, progress, session
from cli.up import YesOption

if TYPE_CHECKING:
    from cli.progress import ProgressView
    from cli.session import Session
    from provision.down import Teardown

ClusterArgument = Annotated[str, typer.Argument(help="The cluster's name.")]


def down(
    context: typer.Context,
    cluster: ClusterArgument,
    cluster_id: Annotated[
        str | None, typer.Option("--id", help="Which one, where several have that name.")
    ] = None,
    yes: YesOption = False,
    as_json: JsonOption = False,
) -> None:
    """Remove everything of a cluster, also what an interrupted command left."""
    from cli.terminal import warn

    here = session(context)
    here.require_lab()
    which = f" {cluster_id}" if cluster_id else ""
    held = _held(here, cluster, cluster_id)
    if held and yes:
        warn(f"{held}; it ends with the cluster")
    ends = f"{held}; it ends with the cluster. " if held else ""
    confirm(f"{ends}Remove cluster {cluster}{which} and everything in it?", yes)
    with progress(as_json) as view:
        teardown = remove(here, cluster, view, cluster_id)
    show(teardown, as_json)


def _held(here: "Session", cluster: str, cluster_id: str | None) -> str:
    """Say which run holds the cluster that is meant; empty where none does, or nobody answers."""
    from cli.held import describe, holder_of
    from provision.records.record import read

    if cluster_id is not None:
        record = read(cluster, here.remembered())
        if record is None or record.id != cluster_id:
            return ""  # it is another's of that name: no head of it is known here
    run = holder_of(here, cluster)
    return describe(here, cluster, run) if run else ""


def remove(
    here: "Session", cluster: str, view: "ProgressView", cluster_id: str | None = None
) -> "Teardown":
    """Remove the cluster; runs that were still going on it are known as failed."""
    from engine.history import History
    from nodes.dial import end as end_broker
    from provision.down import down as take_down
    from provision.records.record import read

    target = here.cluster_target(cluster)
    end_broker(str(target.clusters / cluster))
    teardown = take_down(cluster, target, view.report, cluster_id)
    if read(cluster, target) is not None:
        return teardown  # another's of that name is gone: ours stays, and so do its runs
    with History(target.runs) as history:
        for run in history.runs():
            if run.cluster == cluster and not run.is_over:
                history.lose(run.run_id, "its cluster was removed")
    return teardown


def show(teardown: "Teardown", as_json: bool) -> None:
    """What was removed, and what the cluster cost, is on stdout."""
    from dataclasses import asdict

    from cli.terminal import elapsed, money, say, say_json

    if as_json:
        say_json(asdict(teardown))
        return
    cost = "cost unknown" if teardown.cost_usd is None else f"about {money(teardown.cost_usd)}"
    say(
        f"Cluster {teardown.name} is gone: {len(teardown.removed)} resources removed, "
        f"up {elapsed(teardown.seconds_up)}, {cost} at list price."
    )
