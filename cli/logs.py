"""`gpuctl logs RUN`: what a run printed, also after its fleet is gone."""

import asyncio
import sys
from typing import TYPE_CHECKING, Annotated

import typer

from cli.session import session

if TYPE_CHECKING:
    from collections.abc import Sequence

    from engine.events import Event, Output

RunArgument = Annotated[str, typer.Argument(help="The run's id, or the name of its latest.")]


def logs(
    context: typer.Context,
    run: RunArgument,
    rank: Annotated[int | None, typer.Option(help="Only this rank.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
) -> None:
    """Print the output of a run by rank, also after its cluster is gone; with -f follow it."""
    from cli.run_view import prefix
    from cli.terminal import say
    from engine.history import History
    from engine.lines import WholeLines
    from engine.record import recorded_events
    from engine.session import follow as follow_run

    here = session(context)
    runs = here.state / "runs"
    with History(runs) as history:
        entry = history.find(run)
    width = len(str(entry.nodes - 1))

    lines = WholeLines()

    def show(some: "Sequence[Output]") -> None:
        for line in some:
            say(prefix(line.rank, width, sys.stdout.isatty()) + line.text)

    def see(event: "Event") -> None:
        if event.kind == "output" and rank in {None, event.rank}:
            show(lines.feed(event))

    if entry.is_over or not follow:
        for event in recorded_events(runs, entry.run_id):
            see(event)
        show(lines.rest())
        return
    from provision.records.record import load_inventory

    inventory = load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    asyncio.run(follow_run(entry.run_id, inventory, runs, see))
    show(lines.rest())
