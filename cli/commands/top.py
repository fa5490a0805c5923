"""`gpuctl top [RUN|CLUSTER]`: what runs use of their nodes now, and GPUs that are idle."""

import sys
from typing import Annotated

import typer

from cli.complete import clusters_and_runs
from cli.options import chosen_target, output
from cli.render import top as render
from cli.terminal import can_redraw
from operations import usage


def top(
    context: typer.Context,
    name: Annotated[
        str | None,
        typer.Argument(
            metavar="RUN|CLUSTER",
            help="A run, or a cluster with all its runs; by default every cluster.",
            autocompletion=clusters_and_runs,
        ),
    ] = None,
    gpus: Annotated[bool, typer.Option("--gpus", help="A line for each GPU.")] = False,
    once: Annotated[
        bool, typer.Option("--once", help="Show it once, as without a terminal.")
    ] = False,
) -> None:
    """Show what runs use of their nodes, live; Ctrl-C ends it.

    It names GPUs that are idle while their run goes on, and what they cost. Of a run that is over
    it shows means and peaks.

    $ gpuctl top
    $ gpuctl top train --gpus
    $ gpuctl top demo --json
    """
    chosen, out = chosen_target(context), output(context)
    view = out.progress()
    watched = usage.find_watched(chosen, name, watcher=view)
    if watched.run_id is not None and not watched.clusters:
        past = usage.past_usage(chosen, watched.run_id)
        out.show(
            {"run_id": watched.run_id, "nodes": [node.model_dump(mode="json") for node in past]},
            render.record_lines(watched.run_id, past, out),
        )
        return
    if not once and not out.as_json and can_redraw(sys.stdout):
        out.watch(lambda: render.lines(usage.current_usage(watched, watcher=view), gpus, out))
        return
    now = usage.current_usage(watched, watcher=view)
    out.show(render.document(now), render.lines(now, gpus, out))
