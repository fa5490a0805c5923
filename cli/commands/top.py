"""`gpuctl top [RUN|CLUSTER]`: what runs use of their nodes now, and GPUs that are idle."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.complete import clusters_and_runs
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from collections.abc import Sequence

    from cli.output import Output
    from cli.render.top import Watched
    from operations.chosen_target import ChosenTarget

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
    import asyncio

    from cli.render.top import document, lines

    here, out = chosen_target(context), output(context)
    wanted, run_id = _wanted(here, name, out)
    if run_id is not None and not wanted:
        _show_record(here, run_id, out)
        return
    is_live = not once and not out.as_json and is_terminal()
    try:
        while True:
            asyncio.run(_ask(wanted, run_id, out))
            if not is_live:
                out.show(document(wanted), lines(wanted, gpus, out))
                return
            out.redraw(lines(wanted, gpus, out))
            asyncio.run(asyncio.sleep(REFRESH_S))
    except KeyboardInterrupt:  # the ordinary end of a live table
        return


def is_terminal() -> bool:
    """Return whether stdout is a terminal, on which a table can be drawn again."""
    import sys

    return sys.stdout.isatty()


def _wanted(
    here: "ChosenTarget", name: str | None, out: "Output"
) -> "tuple[list[Watched], str | None]":
    """Return the clusters to watch, and the run if `name` is one; no cluster for a run's record."""
    from cli.known_runs import known_run
    from cli.render.top import watched
    from cli.shared_journals import fetch_journal
    from config.errors import InputError
    from provision.records.record import read, records

    if name is None:
        here.require_lab()
        known = [record.name for record in records(here.remembered())]
        found = [one for one in (watched(here, each) for each in known) if one is not None]
        if not found:
            raise InputError("no cluster is ready", "see `gpuctl status` for all")
        return found, None
    if read(name, here.remembered()) is not None:
        one = watched(here, name)
        if one is None:
            raise InputError(f"cluster {name} is not ready", f"see `gpuctl status {name}`")
        return [one], None
    entry = known_run(here, name, out)
    if entry.is_over:
        fetch_journal(here, entry, out)
        return [], entry.run_id
    one = watched(here, entry.cluster)
    if one is None:
        raise InputError(f"cluster {entry.cluster} is not ready", "see `gpuctl status` for all")
    return [one], entry.run_id


async def _ask(wanted: "Sequence[Watched]", run_id: str | None, out: "Output") -> None:
    """Ask the heads what is used now; one of several that does not answer is a warning."""
    import asyncio

    from config.errors import NodeError
    from engine.analysis.metrics.live import live_runs

    asked = (live_runs(cluster.inventory, run_id) for cluster in wanted)
    answers = await asyncio.gather(*asked, return_exceptions=True)  # judged one by one below
    for one, answer in zip(wanted, answers, strict=True):
        if isinstance(answer, BaseException):
            if len(wanted) == 1 or not isinstance(answer, NodeError):
                raise answer
            out.warn(f"what cluster {one.inventory.cluster} uses is unknown: {answer.message}")
            one.runs = ()
        else:
            one.runs = answer


def _show_record(here: "ChosenTarget", run_id: str, out: "Output") -> None:
    """Show what a run that is over used."""
    from cli.render.top import record_document, record_lines
    from config.errors import InputError
    from engine.analysis.metrics.summary import summaries
    from engine.record.metrics_record import recorded_samples

    found = summaries(recorded_samples(here.state / "runs", run_id))
    if not found:
        raise InputError(
            f"run {run_id} is over, and this machine has no metrics of it",
            "`gpuctl run` and `gpuctl attach` keep them at a run's end",
        )
    out.show(record_document(run_id, found), record_lines(run_id, found, out))
