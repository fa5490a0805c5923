"""`gpuctl queue CLUSTER|move|drop`: the runs on a cluster, and the order of those that wait."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.arguments import ClusterArgument, RunArgument
from cli.options import chosen_target, output
from cli.parser import Command, CommandGroup
from cli.render import run as render
from config.errors import InputError
from config.folded_names import fold
from operations import run_queue

if TYPE_CHECKING:
    from cli.output import Output


DROP = ("SINCE", "NODES", "OWNER", "PLACE")
"""The columns that a narrow terminal lacks, the first of them first."""


class _QueueGroup(CommandGroup):
    """The group, in which a word that is no command is an argument of the default command."""

    default = "show"

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[Any, Any, list[str]]:
        """Return the command that the line names, and its arguments."""
        named = args if args[0] in self.commands else [self.default, *args]
        return super().resolve_command(ctx, named)


app = typer.Typer(
    cls=_QueueGroup,
    help="Show the runs on a cluster, and change their order.\n\n"
    "$ gpuctl queue demo\n$ gpuctl queue move nccl-tests first\n$ gpuctl queue drop nccl-tests",
    epilog="do/queue.md",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command(cls=Command, epilog="do/queue.md")
def show(context: typer.Context, cluster: ClusterArgument) -> None:
    """Show the runs on a cluster, those that wait in their order.

    $ gpuctl queue show demo
    """
    _show(run_queue.queue(chosen_target(context), cluster), output(context))


@app.command(cls=Command, epilog="do/queue.md")
def move(
    context: typer.Context,
    run: RunArgument,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="`first`, or a number from 1.")],
) -> None:
    """Give a run that waits another place in the queue.

    $ gpuctl queue move nccl-tests first
    $ gpuctl queue move train-4f2a1c 3
    """
    number = "1" if place == "first" else place
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"PLACE is '{place}'", "write `first`, or a number from 1")
    out = output(context)
    with out.progress() as view:
        queue = run_queue.move(chosen_target(context), run, int(number), watcher=view)
    _show(queue, out)


@app.command(cls=Command, epilog="do/queue.md")
def drop(context: typer.Context, run: RunArgument) -> None:
    """Take a run that waits out of the queue.

    It ends as stopped and never starts.

    $ gpuctl queue drop nccl-tests
    """
    out = output(context)
    with out.progress() as view:
        result = run_queue.drop(chosen_target(context), run, watcher=view)
    out.show(result.model_dump(mode="json"), render.verdict(result))


def _show(queue: "run_queue.Queue", out: "Output") -> None:
    """Print the runs on the cluster."""
    value = [
        {**queued.run.model_dump(mode="json"), "place": queued.place or None}
        for queued in queue.runs
    ]
    out.show(value, _lines(queue, out))


def _lines(queue: "run_queue.Queue", out: "Output") -> Iterator[str]:
    if not queue.runs:
        yield f"No run is on cluster {queue.cluster}."
        return
    rows = (
        (
            f"{queued.place or ''}",
            queued.run.run_id,
            queued.run.state,
            fold(queued.run.nodes),
            f"{queued.run.since:%Y-%m-%d %H:%M:%S}" if queued.run.since else "",
            queued.run.owner,
        )
        for queued in queue.runs
    )
    head = ("PLACE", "RUN", "STATE", "NODES", "SINCE", "OWNER")
    yield from out.table(head, rows, right=("PLACE",), drop=DROP)
