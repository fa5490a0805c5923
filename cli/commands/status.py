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
        out.watch(lambda: _lines(operation.overview(chosen, cluster), cluster))
        return
    overview = operation.overview(chosen, cluster)
    lines = _lines(overview, cluster)
    for error in overview.record_errors:
        out.warn(str(error))
    out.show([_document(status, overview) for status in _named(overview, cluster)], lines)


def _named(overview: "Overview", name: str | None) -> "tuple[ClusterStatus, ...]":
    return overview.clusters if name is None else overview.named(name)


def _document(status: "ClusterStatus", overview: "Overview") -> dict[str, object]:
    last = overview.last_runs.get(status.name)
    run = None if last is None else {**last.record.model_dump(mode="json"), "heard": last.heard}
    return {**asdict(status), "last_run": run}


def _lines(overview: "Overview", name: str | None) -> list[str]:
    lines = [
        line
        for status in _named(overview, name)
        for line in render.status_lines(status, overview.last_runs.get(status.name))
    ]
    return lines or ["No cluster exists."]
