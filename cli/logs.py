"""`gpuctl logs RUN`: what a run printed, also after its fleet is gone."""

import json
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import LatestRunArgument
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from collections.abc import Sequence
    from pathlib import Path

    from cli.output import Output
    from engine.events import Event
    from engine.events import Output as Line
    from engine.history import RunRecord


def logs(
    context: typer.Context,
    run: LatestRunArgument = None,
    rank: Annotated[int | None, typer.Option(metavar="N", help="Only this rank.")] = None,
    follow: Annotated[bool, typer.Option("--follow", "-f", help="Go on until it ends.")] = False,
) -> None:
    """Print the output of a run by rank, also when it is over.

    It is there after the cluster is gone. With --json every line of output is one JSON object:
    time, rank, stream, text.

    $ gpuctl logs
    $ gpuctl logs nccl-tests --rank 1 -f
    """
    import asyncio

    from config.errors import InputError
    from engine.journal_copy import recorded_events
    from engine.lines import WholeLines
    from engine.session import follow as follow_run

    here, out = chosen_target(context), output(context)
    runs = here.state / "runs"
    entry = chosen_run(run, runs, out)
    if entry.is_over and not (runs / entry.run_id / "journal.jsonl").exists():
        raise InputError(
            f"the logs of run {entry.run_id} are not kept any more",
            f"30 days and 10 GiB are kept; `gpuctl results {entry.run_id}` shows its results",
        )
    width = len(str(entry.nodes - 1))
    lines = WholeLines()

    def show(some: "Sequence[Line]") -> None:
        for line in some:
            _show(line, width, out)

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


def chosen_run(name: str | None, runs: "Path", out: "Output") -> "RunRecord":
    """Return the run of this id or name; without one the newest, and say on stderr which it is."""
    from config.errors import InputError
    from engine.history import History

    with History(runs) as history:
        if name is not None:
            return history.find(name)
        newest = history.runs()[:1]
    if not newest:
        raise InputError("no run was started yet", "start one with `gpuctl run FILE`")
    out.complain(f"gpuctl: run {newest[0].run_id}, the newest")
    return newest[0]


def _show(line: "Line", width: int, out: "Output") -> None:
    from cli.run_view import prefix

    if out.as_json:
        value = line.model_dump(mode="json", include={"time", "rank", "stream", "text"})
        out.record(json.dumps(value, ensure_ascii=False))
    else:
        out.say(prefix(line.rank, width, out.has_color) + line.text)
