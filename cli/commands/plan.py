"""`gpuctl plan FILE`: the changes that `up` would make, and their cost. It creates nothing."""

from typing import TYPE_CHECKING

import typer

from cli.arguments import FileArgument
from cli.options import RefreshOption, ReplaceOption, chosen_target, output

if TYPE_CHECKING:
    from pathlib import Path

    from cli.output import Output
    from config.cluster.cluster_file import Cluster
    from provision.up import FleetPlan


def plan(
    context: typer.Context,
    file: FileArgument,
    refresh: RefreshOption = False,
    replace: ReplaceOption = None,
) -> None:
    """Show the changes that `up` would make, and their cost.

    $ gpuctl plan cluster.yaml
    $ gpuctl plan cluster.yaml --replace node1
    $ gpuctl plan cluster.yaml --json | jq .hourly_usd
    """
    from cli.lease import with_lifetime

    here, out = chosen_target(context), output(context)
    cluster = with_lifetime(cluster_of(file, out), here)
    with out.progress() as view:
        here.ensure_lab(view.report)
        from provision.up import plan as plan_fleet

        target = here.target(cluster.region)
        fleet_plan = plan_fleet(
            cluster, target, view.report, refresh=refresh, replace=replace or ()
        )
    show(fleet_plan, out)


def cluster_of(path: "Path", out: "Output") -> "Cluster":
    """Return the cluster of a file and report its warnings; raises InputError."""
    from config.loading.load import load_cluster

    return load_cluster(path, out.complain)


def show(fleet_plan: "FleetPlan", out: "Output") -> None:
    """Print the plan on stdout."""
    from cli.render.plan import plan_json, plan_lines

    out.show(plan_json(fleet_plan), plan_lines(fleet_plan))
