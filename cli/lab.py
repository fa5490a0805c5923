"""`gpuctl lab start|stop|status|images|fault`: an AWS region on this machine, or several."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.plan import JsonOption
from cli.session import progress, session
from config.errors import InputError

if TYPE_CHECKING:
    from lab.lifecycle import LabStatus
    from lab.places import Places

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
def list_faults(context: typer.Context, as_json: JsonOption = False) -> None:
    """Show every fault that the lab can be told, and those that are set."""
    from cli.terminal import say, say_json
    from lab.api.faults import FAULTS, read

    now = read(session(context).chosen_lab.faults)
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
    from lab.machines.spot_instances import instance_ids

    lab, wanted = session(context).chosen_lab, tuple(arguments or ())
    if name == "spot-interruption":
        _require(lab)
        named = wanted[:-1] if wanted and wanted[-1].isdigit() else wanted
        region = session(context).region or "us-east-1"
        wanted = (*instance_ids(named, target(lab, region)), *wanted[len(named) :])
    given = parse(name, wanted)
    _require(lab)
    write(lab.faults, read(lab.faults) | {name: given})
    if name in ("reservation", "block"):
        kind = "capacity-block" if name == "block" else name
        say(f"capacity: {{type: {kind}, id: {given[-2]}}}")


@fault.command("clear")
def clear_fault(
    context: typer.Context,
    names: Annotated[
        list[str] | None, typer.Argument(help="Faults to clear; by default all of them.")
    ] = None,
) -> None:
    """Have the lab refuse nothing more, or not what is named."""
    from lab.api.faults import read, write

    lab = session(context).chosen_lab
    _require(lab)
    now = read(lab.faults)
    if unknown := sorted(set(names or ()) - set(now)):
        raise InputError(f"fault {unknown[0]} is not set", f"set are: {', '.join(now) or 'none'}")
    write(lab.faults, {name: now[name] for name in now if names and name not in names})


def _require(lab: "Places") -> None:
    """Raise InputError where the lab is down: faults go with it."""
    from lab.state import record

    if record(lab) is None:
        raise InputError("the lab is not running", f"start it with `{lab.command('start')}`")


@app.command()
def start(context: typer.Context, as_json: JsonOption = False) -> None:
    """Start the lab; clears what a crashed one left, makes its images the first time."""
    from lab.lifecycle import start as start_lab

    lab = session(context).chosen_lab
    with progress(as_json) as view:
        start_lab(lab, view.report)
    _show(lab, as_json)


@app.command()
def stop(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Stop every lab of this machine.")] = False,
    as_json: JsonOption = False,
) -> None:
    """Stop the lab; no machine, mount, bridge, cgroup or rule of it is left."""
    from lab.lifecycle import present
    from lab.lifecycle import stop as stop_lab

    lab = session(context).chosen_lab
    with progress(as_json) as view:
        for each in present() if every else (lab,):
            stop_lab(each, view.report)
    _show(lab, as_json)


@app.command()
def status(
    context: typer.Context,
    leftovers: Annotated[
        bool, typer.Option("--leftovers", help="Only what a lab that is down left behind.")
    ] = False,
    as_json: JsonOption = False,
) -> None:
    """Show whether the lab runs, where its API is, its machines, and other labs that run."""
    lab = session(context).chosen_lab
    if leftovers:
        from cli.terminal import say
        from lab.leftovers import found

        for line in found(lab):
            say(line)
        return
    _show(lab, as_json)


@app.command()
def images(
    flavours: Annotated[
        list[str] | None, typer.Argument(help="stock, dlami, frameworks; by default all.")
    ] = None,
    as_json: JsonOption = False,
) -> None:
    """Make the images that the lab's machines boot, if they are not in the cache."""
    from cli.terminal import say, say_json
    from lab.images.image import FLAVOURS, ensure_image
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


def _show(lab: "Places", as_json: bool) -> None:
    from dataclasses import asdict

    from cli.terminal import say, say_json
    from lab.lifecycle import others
    from lab.lifecycle import status as lab_status

    now, beside = lab_status(lab), others(lab)
    if as_json:
        say_json({**asdict(now), "others": [asdict(other) for other in beside]})
        return
    title = "The lab" if lab.is_default else f"Lab {lab.name}"
    if now.up:
        say(f"{title} is up: {_running(now)}")
    else:
        say(f"{title} is down.")
    for machine in now.machines:
        say(f"  {machine}")
    for other in beside:
        say(f"Also up: lab {other.name}: {_running(other)}")


def _running(lab: "LabStatus") -> str:
    return f"API {lab.api_url}, process {lab.pid}, {len(lab.machines)} machines"
