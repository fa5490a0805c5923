"""`gpuctl plan FILE`: the changes that `up` would make, and their cost. It creates nothing."""

from typing import Annotated

import typer

from cli.arguments import FileArgument, ReplaceOption
from cli.options import RefreshOption, chosen_target, options, output
from cli.render import plan as render
from config.loading import load
from operations import lease, rent

CHANGES = 2
"""The exit code of --detailed-exitcode if there are changes, as that of `terraform plan`
(https://developer.hashicorp.com/terraform/cli/commands/plan, 2026-11-23)."""


def plan(
    context: typer.Context,
    file: FileArgument,
    refresh: RefreshOption = False,
    replace: ReplaceOption = None,
    detailed_exitcode: Annotated[
        bool,
        typer.Option(
            "--detailed-exitcode",
            help="0: no changes, 1: an error, 2: changes, as in Terraform.",
        ),
    ] = False,
) -> None:
    """Show the changes that `up` would make, and their cost.

    $ gpuctl plan cluster.yaml
    $ gpuctl plan cluster.yaml --replace node1
    $ gpuctl plan cluster.yaml --json | jq .hourly_usd
    """
    chosen, out = chosen_target(context), output(context)
    options(context).has_terraform_codes = detailed_exitcode
    cluster = lease.with_lifetime(chosen, load.load_cluster(file, out.complain))
    with out.progress() as view:
        fleet_plan = rent.plan(
            chosen, cluster, refresh=refresh, replace=replace or (), watcher=view
        )
    render.show_plan(fleet_plan, out)
    if detailed_exitcode and not fleet_plan.plan.is_empty:
        raise typer.Exit(CHANGES)
