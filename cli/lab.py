"""`gpuctl lab start|stop|status|images|fault`: the AWS region on this machine."""

from typing import Annotated

import typer

from cli.plan import JsonOption
from cli.session import progress, session
from config.errors import InputError

app = typer.Typer(
    help="The lab: an AWS region on this machine, to rehearse in.",
    no_args_is_help=True,
    rich_markup_mode=None,
)


fault = typer.Typer(
    help="What the lab refuses, with AWS's own codes, to rehearse failures.",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(fault, name="fault")


@fault.command("list")
def list_faults(as_json: JsonOption = False) -> None:
    """Show every fault that the lab can be told, and those that are set."""
    from cli.terminal import say, say_json
    from lab.api.faults import FAULTS, read
    from lab.state import FAULTS as TABLE

    now = read(TABLE)
    if as_json:
        say_json({name: list(arguments) for name, arguments in now.items()})
        return
    for name, kind in FAULTS.items():
        say(f"{'set' if name in now else '':<4} {name + ' ' + kind.usage:<38} {kind.code}")
        say(f"{'':<4} {'':<38} {kind.meaning}")
        if name in now:
            say(f"{'':<4} {'':<38} now: {' '.join((name, *now[name]))}")


@fault.command("set")
def set_fault(
    context: typer.Context,
    name: Annotated[str, typer.Argument(help="One of `gpuctl lab fault list`.")],
    arguments: Annotated[
        list[str] | None, typer.Argument(help="What the fault is given, as the list shows.")
    ] = None,
) -> None:
    """Have the lab refuse something, from the next request on, until it is cleared or stopped."""
    from cli.terminal import say
    from lab.api.faults import parse, read, write
    from lab.lifecycle import target
    from lab.spot_instances import instance_ids
    from lab.state import FAULTS as TABLE

    wanted = tuple(arguments or ())
    if name == "spot-interruption":
        _require_lab()
        named = wanted[:-1] if wanted and wanted[-1].isdigit() else wanted
        region = session(context).region or "us-east-1"
        wanted = (*instance_ids(named, target(region)), *wanted[len(named) :])
    given = parse(name, wanted)
    _require_lab()
    write(TABLE, read(TABLE) | {name: given})
    if name in ("reservation", "block"):
        kind = "capacity-block" if name == "block" else name
        say(f"capacity: {{type: {kind}, id: {given[-2]}}}")


@fault.command("clear")
def clear_fault(
    names: Annotated[
        list[str] | None, typer.Argument(help="Faults to clear; by default all of them.")
    ] = None,
) -> None:
    """Have the lab refuse nothing more, or not what is named."""
    from lab.api.faults import read, write
    from lab.state import FAULTS as TABLE

    _require_lab()
    now = read(TABLE)
    if unknown := sorted(set(names or ()) - set(now)):
        raise InputError(f"fault {unknown[0]} is not set", f"set are: {', '.join(now) or 'none'}")
    write(TABLE, {name: now[name] for name in now if names and name not in names})


def _require_lab() -> None:
    """Faults go with the lab: where none runs there is nothing to tell."""
    from lab.state import record

    if record() is None:
        raise InputError("the lab is not running", "start it with `gpuctl lab start`")


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


@app.command()
def images(
    flavours: Annotated[
        list[str] | None, typer.Argument(help="stock, dlami, frameworks; by default all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make the images that the lab's machines boot, if they are not in the cache."""
    from cli.terminal import say, say_json
    from lab.image import FLAVOURS, ensure_image
    from lab.prerequisites import require

    wanted = [flavour for flavour in FLAVOURS if not flavours or flavour in flavours]
    if unknown := sorted(set(flavours or ()) - set(FLAVOURS)):
        raise InputError(f"no image {unknown[0]!r}", f"images are: {', '.join(FLAVOURS)}")
    require("images cannot be made")
    with progress(as_json) as view:
        paths = {flavour: str(ensure_image(flavour, view.report)) for flavour in wanted}
    if as_json:
        say_json(paths)
        return
    for flavour, path in paths.items():
        say(f"{flavour:<10}  {path}")


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
