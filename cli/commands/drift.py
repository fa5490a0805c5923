"""`gpuctl drift CLUSTER`: what others have changed in AWS since the last `up`."""

from dataclasses import asdict

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from cli.render import drift as render
from config.errors import ExitCode
from operations import drift as operation


def drift(context: typer.Context, cluster: ClusterArgument) -> None:
    """Show what others have changed in AWS since the last `up`.

    The exit code is 0 if nothing differs, and 3 if something does.

    $ gpuctl drift demo
    $ gpuctl drift demo --json
    """
    chosen, out = chosen_target(context), output(context)
    with out.progress() as view:
        differences = operation.find(chosen, cluster, watcher=view)
    out.show(asdict(differences), render.drift_lines(differences))
    if not differences.is_empty:
        raise typer.Exit(ExitCode.DIFFERS)
