"""`gpuctl plan FILE`: what `up` would do, and what it would cost. Nothing is created."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.session import cluster_of, progress, session

if TYPE_CHECKING:
    from provision.up import FleetPlan

FileArgument = Annotated[Path, typer.Argument(help="The cluster file.")]
JsonOption = Annotated[bool, typer.Option("--json", help="One JSON document on stdout.")]
RefreshOption = Annotated[
    bool,
    typer.Option(
        "--refresh", help="Renew the user data and settings that machines were launched with."
    ),
]


def plan(
    context: typer.Context,
    file: FileArgument,
    refresh: RefreshOption = False,
    as_json: JsonOption = False,
) -> None:
    """Show what `up` would create, change or remove, and the cost per hour of the whole fleet."""
    here = session(context)
    cluster = cluster_of(file)
    with progress(as_json) as view:
        here.ensure_lab(view)
        from provision.up import plan as plan_fleet

        target = here.target(cluster.region)
        fleet_plan = plan_fleet(cluster, target, view.report, refresh=refresh)
    show(fleet_plan, as_json)


def show(fleet_plan: "FleetPlan", as_json: bool) -> None:
    """The plan is on stdout."""
    from cli.plan_text import plan_json, plan_lines
    from cli.terminal import say, say_json

    if as_json:
        say_json(plan_json(fleet_plan))
    else:
        say("\n".join(plan_lines(fleet_plan)))
