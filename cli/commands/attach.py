"""`gpuctl attach RUN`: follow a run to its end as `gpuctl run` does, also from another machine."""

import time
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import RunArgument
from cli.interrupts import OnInterruptOption
from cli.options import FoldOption, chosen_target, output
from config.errors import InputError, NodeError

if TYPE_CHECKING:
    from cli.output import Output
    from engine.record.events import FirstEvent
    from engine.record.history import RunRecord
    from engine.record.result import RunResult
    from engine.session.following import OnEvent
    from engine.session.session import OnInterrupt
    from nodes.inventory import Inventory
    from operations.chosen_target import ChosenTarget


def attach(
    context: typer.Context,
    run: RunArgument,
    since: Annotated[
        str | None,
        typer.Option(metavar="AGE", help="Show what happened in the last 10m or 2h, not all."),
    ] = None,
    folds: FoldOption = False,
    on_interrupt: OnInterruptOption = "ask",
) -> None:
    """Follow a run to its end, and do then what `gpuctl run` does.

    It shows the run from its beginning, forwards its ports, fetches its outputs, removes the
    cluster if the run says so, and ends with the job's exit code. The run may be of another
    machine, if this one has a record of its cluster. A run that is over is shown again. Without a
    terminal Ctrl-C detaches.

    $ gpuctl attach train
    $ gpuctl attach train-4f2a1c --since 10m
    """
    from cli.forwarded_ports import forwarded
    from cli.healing import Healing, preparation
    from cli.interrupts import on_interrupt as answer_to
    from cli.known_runs import known_run
    from cli.run_client import RunClient
    from cli.run_end import check_removable
    from engine.session import session
    from provision.records.record import load_inventory

    here, out = chosen_target(context), output(context)
    begin = _begin(since)
    answer_to(on_interrupt, "", out)  # refuses a wrong choice before it asks anybody
    entry = known_run(here, run, out)
    if entry.is_over:
        raise typer.Exit(_show_again(here, entry, out, begin, folds=folds))
    target = here.cluster_target(entry.cluster)
    there = load_inventory(entry.cluster, target)
    if entry.on_stop == "destroy":
        check_removable(entry.cluster, target)
    # What is to follow the run's end is this machine's knowledge: a job is root on the head.
    started = replace(_started(here, entry, there), on_stop=entry.on_stop)
    asked = answer_to(on_interrupt, entry.run_id, out, unattended="detach")
    client = RunClient(here, started, there, out, begin, folds=folds)
    healing = Healing(here, started.run_id, there, out, preparation(started.run_id, out))

    async def follow(see: "OnEvent", on: "OnInterrupt") -> "RunResult":
        with forwarded(started.ports, there, started.nodes[0].name, out):
            return await session.attach(started, there, target.runs, see, on)

    raise typer.Exit(client.live(follow, asked, healing))


def _begin(since: str | None) -> float:
    """Return the time of the first event to show, in seconds since 1970."""
    from config.duration import parse_duration

    if since is None:
        return 0.0
    try:
        return time.time() - parse_duration(since)
    except ValueError as error:
        raise InputError(f"--since is '{since}': it {error}", "write 10m or 2h") from None


def _started(here: "ChosenTarget", entry: "RunRecord", there: "Inventory") -> "FirstEvent":
    """Return the run's first event.

    Raise at once if the head does not answer: RunLost if AWS says that it is gone, else NodeError.
    """
    import asyncio

    from cli.lost_head import lost_head
    from engine.record.history import History
    from engine.session.head import find_run
    from engine.session.session import first_event

    try:
        found = asyncio.run(find_run(there, entry.run_id))
    except NodeError as error:
        lost = None if entry.on_stop == "destroy" else lost_head(here, there, entry)
        if lost is not None:
            with History(here.state / "runs") as history:
                history.mark_lost(entry.run_id, lost.reason)
            raise lost from error
        if entry.on_stop == "destroy":
            error.hint = after_power_off(entry.run_id, there)
        elif not error.hint:
            error.hint = f"`gpuctl logs {entry.run_id}` prints what this machine has of its output"
        raise
    if found is None or found.run_id != entry.run_id:
        return asyncio.run(first_event(entry.run_id, there, here.state / "runs"))
    return found


def after_power_off(run_id: str, there: "Inventory") -> str:
    """Return what to do about a run with `on_stop: destroy` whose head does not answer."""
    from engine.plan.remote_paths import saved_folder
    from engine.record.run_errors import way_to_saved

    over = "if the run is over, its nodes have powered off"
    saved = saved_folder(run_id, there.shared)
    if not saved:
        return f"{over}: `gpuctl down {there.cluster}` removes the rest"
    left = f"have left its log, metrics and outputs in {saved}"
    return f"{over}, and {left}: {way_to_saved(run_id, there.cluster)}"


def _recorded(entry: "RunRecord", runs: Path) -> "FirstEvent | None":
    from engine.record.events import FirstEvent
    from engine.record.journal_copy import recorded_events

    first = next(recorded_events(runs, entry.run_id), None)
    return first if isinstance(first, FirstEvent) else None


def _show_again(
    here: "ChosenTarget", entry: "RunRecord", out: "Output", begin: float, *, folds: bool
) -> int:
    """Show a run that is over; return its exit code.

    The journal is this machine's copy, or that of a colleague's run from the team's bucket.
    Nothing is removed: the cluster may be in use again.
    """
    from cli.render.run import RunView
    from cli.shared_journals import fetch_journal
    from config.errors import RunError
    from engine.record.journal_copy import evidence_folder, recorded_events
    from engine.record.result import ResultCollector

    fetch_journal(here, entry, out)
    if entry.is_lost:
        _fetch_saved(here, entry, out)
    runs = here.state / "runs"
    started = _recorded(entry, runs)
    if started is None:
        raise InputError(
            f"the logs of run {entry.run_id} are not kept any more",
            f"30 days and 10 GiB are kept; `gpuctl results {entry.run_id}` shows its results",
        )
    view, collector = RunView(started, out, folds=folds), ResultCollector()
    for event in recorded_events(runs, entry.run_id):
        collector.see(event)
        (view.skip if event.time < begin else view.event)(event)
    result = collector.result()
    if result is None:
        raise RunError(f"run {entry.run_id} failed: {entry.reason}", "")
    folder = evidence_folder(runs, entry.run_id)
    evidence = folder if folder.exists() else None
    outputs = _late_outputs(here, started, out)
    view.end(result, evidence)
    if out.as_json:
        view.end_json(result, entry.cost_usd, evidence, outputs)
    return result.exit_code


def _fetch_saved(here: "ChosenTarget", entry: "RunRecord", out: "Output") -> None:
    """Take what a lost run left from the shared storage of its cluster, which `up` made again.

    An error is a warning: this machine may have a part of the run's journal.
    """
    from config.errors import GpuctlError
    from engine.plan.remote_paths import saved_folder
    from engine.session.saved_run import fetch_saved
    from provision.records.record import load_inventory

    if here.is_lab_down():
        return
    try:
        there = load_inventory(entry.cluster, here.cluster_target(entry.cluster))
    except InputError:  # the cluster is gone
        return
    try:
        missing = fetch_saved(entry.run_id, there, here.state / "runs")
    except GpuctlError as error:
        out.warn(f"what run {entry.run_id} has saved did not come: {error}")
        return
    if missing is not None:
        out.note(f"-- fetched from {saved_folder(entry.run_id, there.shared)} of {there.cluster}")
    for line in missing or ():
        out.warn(f"not everything was saved: {line}")


def _late_outputs(here: "ChosenTarget", started: "FirstEvent", out: "Output") -> Path | None:
    """Return the folder of the run's outputs; fetch them if no client has, and the cluster is up.

    A client that only waits (`gpuctl wait`, `gpuctl logs`) leaves them on the nodes.
    """
    from cli.code import fetch
    from engine.record.journal_copy import outputs_folder
    from provision.records.record import load_inventory

    runs = here.state / "runs"
    kept = outputs_folder(runs, started.run_id)
    if kept.exists() or not started.outputs or here.is_lab_down():
        return kept if kept.exists() else None
    try:
        there = load_inventory(started.cluster, here.cluster_target(started.cluster))
    except InputError:  # the cluster is gone
        return None
    fetched = fetch(started, there, runs, out)
    if fetched is None and started.saved:
        out.note(f"-- {after_power_off(started.run_id, there)}")
    return fetched
