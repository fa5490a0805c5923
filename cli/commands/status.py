"""`gpuctl status`: the clusters that exist, also those of interrupted commands."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import clusters as known_clusters
from cli.options import WatchOption, chosen_target, output
from cli.render import status as render
from operations import status as operation

if TYPE_CHECKING:
    from operations.status import ClusterStatus, Overview


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
    watch: WatchOption = False,
) -> None:
    """Show the clusters that exist, their nodes, and their cost so far.

    $ gpuctl status
    $ gpuctl status demo --watch
    $ gpuctl status demo --json
    """
    chosen, out = chosen_target(context), output(context)
    if watch:
        out.watch(lambda: _lines(_named(operation.overview(chosen), cluster)))
        return
    overview = operation.overview(chosen)
    clusters = _named(overview, cluster)
    for error in overview.record_errors:
        out.warn(str(error))
    out.show([asdict(status) for status in clusters], _lines(clusters))


def _named(overview: "Overview", name: str | None) -> "tuple[ClusterStatus, ...]":
    return overview.clusters if name is None else overview.named(name)


def _lines(clusters: "tuple[ClusterStatus, ...]") -> list[str]:
    lines = [line for status in clusters for line in render.status_lines(status)]
    return lines or ["No cluster exists."]
