"""`gpuctl wait RUN`: wait for a run's end, and end with its exit code."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import RunArgument
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from pathlib import Path

    from engine.session.following import OnEvent
    from nodes.inventory import Inventory

TIMED_OUT = 124
"""The exit code if the run did not end in time, as that of timeout(1)."""


def wait(
    context: typer.Context,
    run: RunArgument,
    timeout: Annotated[
        str | None,
        typer.Option(metavar="TIME", help="Wait this long at most (30m, 8h), then end with 124."),
    ] = None,
) -> None:
    """Wait for a run's end, and end with the job's exit code.

    It shows no output, fetches no outputs and removes no cluster: `gpuctl attach` does.

    $ gpuctl wait train
    $ gpuctl wait train-4f2a1c --timeout 8h
    """
    import asyncio

    from cli.known_runs import known_run
    from cli.lost_head import head_watch
    from engine.record.history import History
    from provision.records.record import load_inventory

    here, out = chosen_target(context), output(context)
    seconds = _seconds(timeout)
    entry = known_run(here, run, out)
    if not entry.is_over:
        target = here.cluster_target(entry.cluster)
        there = load_inventory(entry.cluster, target)
        see = head_watch(here, there, entry)
        if not asyncio.run(_has_ended(entry.run_id, there, target.runs, seconds, see)):
            out.complain(f"gpuctl: run {entry.run_id} did not end within {timeout}; it goes on")
            raise typer.Exit(TIMED_OUT)
        with History(target.runs) as history:
            entry = history.find(entry.run_id)
    reason = f": {entry.reason}" if entry.reason else ""
    line = f"Run {entry.run_id}: {entry.status}, exit code {entry.exit_code}{reason}"
    out.show(entry.model_dump(mode="json"), [line])
    raise typer.Exit(entry.exit_code or 0)


def _seconds(timeout: str | None) -> int | None:
    from config.duration import parse_duration
    from config.errors import InputError

    try:
        return None if timeout is None else parse_duration(timeout)
    except ValueError as error:
        raise InputError(f"--timeout is '{timeout}': it {error}", "write 30m or 8h") from None


async def _has_ended(
    run_id: str, there: "Inventory", runs: "Path", seconds: int | None, see: "OnEvent"
) -> bool:
    """Follow the run; return whether it ended in time."""
    import asyncio

    from engine.session.session import follow

    try:
        async with asyncio.timeout(seconds):
            await follow(run_id, there, runs, see)
    except TimeoutError:
        return False
    return True
