"""`gpuctl stop RUN`: stop the run on every node."""

from typing import Annotated

import typer

from cli.arguments import RunArgument
from cli.options import chosen_target, output
from cli.render import followed_run
from cli.render import run as render
from config import duration
from operations import runs

_Grace = Annotated[
    str | None,
    typer.Option(
        metavar="TIME", help="Give the job notice, and stop it after this time (90s, 5m)."
    ),
]


def stop(context: typer.Context, run: RunArgument, grace: _Grace = None) -> None:
    """Stop a run gracefully on all its nodes.

    The cluster stays, unless the run says `on_stop: destroy`.

    $ gpuctl stop nccl-tests
    $ gpuctl stop train --grace 5m
    """
    out = output(context)
    grace_s = 0 if grace is None else duration.given_duration(grace, "--grace", "90s or 5m")
    with out.progress() as view:
        stopped = runs.stop(chosen_target(context), run, grace_s=grace_s, watcher=view)
    if stopped.teardown is not None:
        followed_run.teardown_view(out)(stopped.teardown)
    out.show(stopped.result.model_dump(mode="json"), render.verdict(stopped.result))
