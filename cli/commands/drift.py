"""`gpuctl drift CLUSTER`: what others have changed in AWS since the last `up`."""

from dataclasses import asdict

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from cli.render import drift as render
from operations import drift as operation

CHANGED = 2
"""The exit code if something differs, as `terraform plan -detailed-exitcode` has it: 0 without
changes, 1 after an error, 2 with changes
(https://developer.hashicorp.com/terraform/cli/commands/plan, 2026-11-23)."""


def drift(context: typer.Context, cluster: ClusterArgument) -> None:
    """Show what others have changed in AWS since the last `up`.

    The exit code is 0 if nothing differs, 2 if something does, and 1 after an error.

    $ gpuctl drift demo
    $ gpuctl drift demo --json
    """
    here, out = chosen_target(context), output(context)
    with out.progress() as view:
        differences = operation.find(here, cluster, watcher=view)
    out.show(asdict(differences), render.drift_lines(differences))
    if not differences.is_empty:
        raise typer.Exit(CHANGED)
