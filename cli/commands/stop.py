"""`gpuctl stop RUN`: stop the run on every node."""

import typer

from cli.arguments import RunArgument
from cli.options import chosen_target, output
from cli.render import followed_run
from cli.render import run as render
from operations import runs


def stop(context: typer.Context, run: RunArgument) -> None:
    """Stop a run gracefully on all its nodes.

    The cluster stays, unless the run says `on_stop: destroy`.

    $ gpuctl stop nccl-tests
    """
    out = output(context)
    with out.progress() as view:
        stopped = runs.stop(chosen_target(context), run, watcher=view)
    if stopped.teardown is not None:
        followed_run.teardown_view(out)(stopped.teardown)
    out.show(stopped.result.model_dump(mode="json"), render.verdict(stopped.result))
