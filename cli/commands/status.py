"""`gpuctl status`: the clusters that exist, also those of interrupted commands."""

from dataclasses import asdict
from typing import Annotated

import typer

from cli.complete import clusters as known_clusters
from cli.options import chosen_target, output
from cli.render import status as render
from operations import status as operation


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
    clusters = operation.clusters(here) if cluster is None else operation.cluster(here, cluster)
    for error in operation.record_errors(here):
        out.warn(str(error))
    lines = [line for status in clusters for line in render.status_lines(status)]
    out.show([asdict(status) for status in clusters], lines or ["No cluster exists."])
