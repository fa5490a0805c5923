"""`gpuctl lab start|stop|status`: the AWS region on this machine."""

from typing import Annotated

import typer

from cli.plan import JsonOption
from cli.session import progress

app = typer.Typer(
    help="The lab: an AWS region on this machine, to rehearse in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


@app.command()
def start(as_json: JsonOption = False) -> None:
    """Start the lab; clears what a crashed one left, makes its images the first time."""
    from lab.lifecycle import start as start_lab

    with progress(as_json) as view:
        start_lab(view.report)
    _show(as_json)


@app.command()
def stop(as_json: JsonOption = False) -> None:
    """Stop the lab; no machine, mount, bridge, cgroup or rule of it is left."""
    from lab.lifecycle import stop as stop_lab

    with progress(as_json) as view:
        stop_lab(view.report)
    _show(as_json)


@app.command()
def status(
    leftovers: Annotated[
        bool, typer.Option("--leftovers", help="Only what a lab that is down left behind.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show whether the lab runs, where its API is, and its machines."""
    if leftovers:
        from cli.terminal import say
        from lab.leftovers import found

        for line in found():
            say(line)
        return
    _show(as_json)


def _show(as_json: bool) -> None:
    from dataclasses import asdict

    from cli.terminal import say, say_json
    from lab.lifecycle import status as lab_status

    now = lab_status()
    if as_json:
        say_json(asdict(now))
        return
    if not now.up:
        say("The lab is down.")
        return
    say(f"The lab is up: API {now.api_url}, process {now.pid}, {len(now.machines)} machines")
    for machine in now.machines:
        say(f"  {machine}")
