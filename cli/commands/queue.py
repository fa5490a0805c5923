"""`gpuctl queue CLUSTER|move|drop`: the runs on a cluster, and the order of those that wait."""

from typing import TYPE_CHECKING, Annotated, Any

import typer

from cli.arguments import ClusterArgument, RunArgument
from cli.options import chosen_target, output
from cli.parser import Command, CommandGroup

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from cli.output import Output
    from config.run.run_file import Run
    from engine.record.history import RunRecord
    from engine.session.cluster_runs import Holder
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget


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
    epilog="runs.md",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


@app.command(cls=Command, epilog="runs.md")
def show(context: typer.Context, cluster: ClusterArgument) -> None:
    """Show the runs on a cluster, those that wait in their order.

    $ gpuctl queue show demo
    """
    from provision.records.record import load_inventory

    here = chosen_target(context)
    _show(load_inventory(cluster, here.cluster_target(cluster)), output(context))


@app.command(cls=Command, epilog="runs.md")
def move(
    context: typer.Context,
    run: RunArgument,
    place: Annotated[str, typer.Argument(metavar="PLACE", help="`first`, or a number from 1.")],
) -> None:
    """Give a run that waits another place in the queue.

    $ gpuctl queue move nccl-tests first
    $ gpuctl queue move train-4f2a1c 3
    """
    import asyncio

    from config.errors import InputError
    from engine.session.cluster_runs import move_run

    number = "1" if place == "first" else place
    if not number.isdecimal() or int(number) < 1:
        raise InputError(f"PLACE is '{place}'", "write `first`, or a number from 1")
    entry, inventory = _waiting_run(chosen_target(context), run, output(context))
    if not asyncio.run(move_run(entry.run_id, inventory, int(number))):
        raise _not_waiting(entry.run_id)
    _show(inventory, output(context))


@app.command(cls=Command, epilog="runs.md")
def drop(context: typer.Context, run: RunArgument) -> None:
    """Take a run that waits out of the queue.

    It ends as stopped and never starts.

    $ gpuctl queue drop nccl-tests
    """
    import asyncio

    from cli.render.run import verdict
    from engine.session.cluster_runs import drop_run
    from engine.session.session import follow

    here = chosen_target(context)
    entry, inventory = _waiting_run(here, run, output(context))
    if not asyncio.run(drop_run(entry.run_id, inventory)):
        raise _not_waiting(entry.run_id)
    runs = here.state / "runs"
    result = asyncio.run(follow(entry.run_id, inventory, runs, lambda _: None))
    output(context).show(result.model_dump(mode="json"), verdict(result))


def current_load(wanted: "Run", there: "Inventory") -> dict[str, int]:
    """Return the nodes that other runs use now; do not ask if the run needs the whole cluster."""
    from engine.plan.modes.job import node_range

    if node_range(wanted)[1] >= len(there.nodes):
        return {}
    import asyncio

    from engine.session.cluster_runs import find_holders, node_load

    return node_load(asyncio.run(find_holders(there)))


def queue_places(
    here: "ChosenTarget", entries: "Sequence[RunRecord]", out: "Output"
) -> dict[str, int]:
    """Return the places of the queued runs of `entries`, as their clusters' heads know them.

    A run that has started since has the place 0. A head that does not answer is a warning.
    """
    clusters = dict.fromkeys(entry.cluster for entry in entries if entry.status == "queued")
    if not clusters:
        return {}
    from operations.cluster_occupancy import find_runs  # asyncssh: `ps` answers at once

    places: dict[str, int] = {}
    for cluster in clusters:
        holders = find_runs(here, cluster, out.progress())
        places |= {holder.run_id: place for place, holder in _numbered(holders)}
    return places


def _waiting_run(here: "ChosenTarget", run: str, out: "Output") -> "tuple[RunRecord, Inventory]":
    """Return the run's record and its cluster's inventory; InputError for a run that is over.

    Another machine may have started it.
    """
    from cli.known_runs import known_run
    from provision.records.record import load_inventory

    entry = known_run(here, run, out)
    if entry.is_over:
        raise _not_waiting(entry.run_id)
    return entry, load_inventory(entry.cluster, here.cluster_target(entry.cluster))


def _not_waiting(run_id: str) -> Exception:
    from config.errors import InputError

    return InputError(
        f"run {run_id} does not wait in a queue",
        f"`gpuctl ps` shows its status, `gpuctl stop {run_id}` ends it if it runs",
    )


def _show(inventory: "Inventory", out: "Output") -> None:
    """Print the runs on the cluster."""
    import asyncio

    from engine.session.cluster_runs import find_holders

    holders = asyncio.run(find_holders(inventory))
    value = [{**one.model_dump(mode="json"), "place": n or None} for n, one in _numbered(holders)]
    out.show(value, _lines(inventory.cluster, holders, out))


def _numbered(holders: "Sequence[Holder]") -> "list[tuple[int, Holder]]":
    """Return the runs with their places: 0 for those that have their nodes, which come first."""
    waiting = [holder for holder in holders if holder.state == "waiting"]
    active = [(0, one) for one in holders if one.state != "waiting"]
    return [*active, *enumerate(waiting, 1)]


def _lines(cluster: str, holders: "Sequence[Holder]", out: "Output") -> "Iterator[str]":
    from nodes.names import fold

    if not holders:
        yield f"No run is on cluster {cluster}."
        return
    rows = (
        (
            f"{place or ''}",
            one.run_id,
            one.state,
            fold(one.nodes),
            f"{one.since:%Y-%m-%d %H:%M:%S}" if one.since else "",
        )
        for place, one in _numbered(holders)
    )
    yield from out.table(("PLACE", "RUN", "STATE", "NODES", "SINCE"), rows, right=("PLACE",))
