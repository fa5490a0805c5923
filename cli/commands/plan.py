"""`gpuctl plan FILE`: the changes that `up` would make, and their cost. It creates nothing."""

import typer

from cli.arguments import FileArgument
from cli.options import RefreshOption, ReplaceOption, chosen_target, output
from cli.render import plan as render
from config.loading import load
from operations import lease, rent


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
    here, out = chosen_target(context), output(context)
    cluster = lease.with_lifetime(here, load.load_cluster(file, out.complain))
    with out.progress() as view:
        fleet_plan = rent.plan(here, cluster, refresh=refresh, replace=replace or (), watcher=view)
    render.show_plan(fleet_plan, out)
