"""`gpuctl wait RUN`: wait for a run's end, and end with its exit code."""

from typing import Annotated

import typer

from cli.arguments import RunArgument
from cli.options import chosen_target, output
from config import duration
from config.errors import ExitCode
from operations import runs


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
    out, seconds = output(context), None
    if timeout is not None:
        seconds = duration.given_duration(timeout, "--timeout", "30m or 8h")
    with out.progress() as view:
        record = runs.wait(chosen_target(context), run, timeout_s=seconds, watcher=view)
    if not record.is_over:
        out.complain(f"gpuctl: run {record.run_id} did not end within {timeout}; it goes on")
        raise typer.Exit(ExitCode.TIMED_OUT)
    reason = f": {record.reason}" if record.reason else ""
    line = f"Run {record.run_id}: {record.status}, exit code {record.exit_code}{reason}"
    out.show(record.model_dump(mode="json"), [line])
    raise typer.Exit(record.exit_code or 0)
