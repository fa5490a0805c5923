"""`gpuctl top [RUN|CLUSTER]`: what runs use of their nodes now, and GPUs that are idle."""

import sys
import time
from contextlib import suppress
from typing import Annotated

import typer

from cli.complete import clusters_and_runs
from cli.options import chosen_target, output
from cli.output import Output
from cli.render import top as render
from operations import usage

REFRESH_S = 5.0
"""Nodes send a sample as often (engine/agent/metrics/sampler.py)."""


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
    here, out = chosen_target(context), output(context)
    view = out.progress()
    watched = usage.find_watched(here, name, watcher=view)
    if watched.run_id is not None and not watched.clusters:
        past = usage.past_usage(here, watched.run_id)
        out.show(
            render.record_document(watched.run_id, past),
            render.record_lines(watched.run_id, past, out),
        )
        return
    if not once and not out.as_json and sys.stdout.isatty():
        watch(watched, out, gpus)
        return
    now = usage.current_usage(watched, watcher=view)
    out.show(render.document(now), render.lines(now, gpus, out))


def watch(watched: usage.Watched, out: Output, gpus: bool, refresh_s: float = REFRESH_S) -> None:
    """Draw the table again every `refresh_s` seconds, until Ctrl-C."""
    view = out.progress()
    with suppress(KeyboardInterrupt):  # the ordinary end of a live table
        while True:
            now = usage.current_usage(watched, watcher=view)
            out.redraw(render.lines(now, gpus, out))
            time.sleep(refresh_s)
