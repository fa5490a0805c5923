"""`gpuctl attach RUN`: follow a run to its end as `gpuctl run` does, also from another machine."""

import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import RunArgument
from cli.interrupts import OnInterruptOption
from cli.interrupts import on_interrupt as answer_to
from cli.options import FoldOption, OutputsOption, chosen_target, output
from cli.render import followed_run
from cli.render import run as render
from config import duration
from operations import past_run, run_search, runs

if TYPE_CHECKING:
    from cli.output import Output
    from engine.contract.event import Event
    from operations.chosen_target import ChosenTarget
    from operations.known import RunRecord
    from operations.runs import OnEvent


def attach(
    context: typer.Context,
    run: RunArgument,
    since: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Show what happened in the last 10m or 2h, not all."),
    ] = None,
    outputs: OutputsOption = None,
    folds: FoldOption = False,
    on_interrupt: OnInterruptOption = "ask",
) -> None:
    """Follow a run to its end, and do then what `gpuctl run` does.

    It shows the run from its beginning, forwards its ports, fetches its outputs, removes the
    cluster if the run says so, and ends with the job's exit code. The run may be of another
    machine, if this one has a record of its cluster. A run that is over is shown again. On a
    terminal Ctrl-C asks whether to stop the run or to leave it alone; Ctrl-C again detaches, and
    so does Ctrl-C without a terminal.

    $ gpuctl attach train
    $ gpuctl attach train-4f2a1c --since 10m
    """
    chosen, out = chosen_target(context), output(context)
    begin = _begin(since)
    answer_to(on_interrupt, "", out)  # refuses a wrong choice before it asks anybody
    with out.progress() as progress:
        record = run_search.find_run(chosen, run, watcher=progress)
    if record.is_over:
        raise typer.Exit(_show_again(chosen, record, out, begin, outputs, folds=folds))
    started = runs.find_started(chosen, record)
    answer = answer_to(on_interrupt, record.run_id, out, is_attached=True)
    view = render.RunView(started.run, out, started.inventory, folds)
    code = followed_run.follow_to_end(
        chosen,
        started.run,
        view,
        out,
        lambda watcher: runs.attach(
            chosen,
            started,
            on_event=_since(begin, view),
            on_interrupt=answer,
            on_removed=followed_run.teardown_view(out),
            outputs=outputs,
            watcher=watcher,
        ),
    )
    raise typer.Exit(code)


def _since(begin: float, view: "render.RunView") -> "OnEvent":
    """Return what shows an event, unless it was before `begin`, in seconds since 1970."""

    def show(event: "Event") -> None:
        if event.time < begin:
            view.skip(event)
        else:
            view.event(event)

    return show


def _begin(since: str | None) -> float:
    """Return the time of the first event to show, in seconds since 1970."""
    if since is None:
        return 0.0
    return time.time() - duration.given_duration(since, "--since", "10m or 2h")


def _show_again(
    chosen: "ChosenTarget",
    record: "RunRecord",
    out: "Output",
    begin: float,
    outputs: Path | None,
    *,
    folds: bool,
) -> int:
    """Show a run that is over; return its exit code."""
    with out.progress() as progress:
        started = past_run.first_event(chosen, record, outputs=outputs, watcher=progress)
        view = render.RunView(started, out, folds=folds)
        on_event = _since(begin, view)
        ended = past_run.replay(chosen, record, started, on_event=on_event, watcher=progress)
    followed_run.show_end(ended, view, out)
    return ended.exit_code
