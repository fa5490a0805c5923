"""`gpuctl lab start|stop|status|images|fault`: an AWS region on this machine, or several."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import chosen_target, output
from cli.parser import Command, CommandGroup
from config.errors import InputError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from config.target import Target
    from lab.lifecycle import LabStatus
    from lab.places import Places

app = typer.Typer(
    cls=CommandGroup,
    help="The lab: an AWS region on this machine, to rehearse in.\n\n"
    "$ gpuctl lab start\n$ gpuctl lab status --lab=b",
    epilog="lab.md",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


fault = typer.Typer(
    cls=CommandGroup,
    help="Faults, with which the lab answers AWS's errors, to rehearse failures.\n\n"
    "$ gpuctl lab fault list\n$ gpuctl lab fault set no-capacity us-east-1a",
    epilog="lab.md",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(fault, name="fault")


@fault.command("list", cls=Command, epilog="lab.md")
def list_faults(context: typer.Context) -> None:
    """Show every fault that the lab can inject, and those that are set.

    $ gpuctl lab fault list
    """
    from lab.fault_table import read

    out, now = output(context), read(chosen_target(context).chosen_lab.faults)
    out.show({name: list(arguments) for name, arguments in now.items()}, _faults(now, out))


def _faults(now: "dict[str, tuple[str, ...]]", out: "Output") -> "Iterator[str]":
    from lab.fault_kinds import FAULTS

    rows = []
    for name, kind in FAULTS.items():
        rows.append(("set" if name in now else "", f"{name} {kind.usage}", kind.code))
        rows.append(("", "", kind.meaning))
        if name in now:
            rows.append(("", "", f"now: {' '.join((name, *now[name]))}"))
    yield from out.table(("NOW", "FAULT", "AWS'S CODE, AND WHAT IT MEANS"), rows)


@fault.command("set", cls=Command, epilog="lab.md")
def set_fault(
    context: typer.Context,
    name: Annotated[str, typer.Argument(metavar="FAULT", help="One of `gpuctl lab fault list`.")],
    arguments: Annotated[
        list[str] | None,
        typer.Argument(metavar="ARGUMENT", help="An argument of the fault, as the list shows."),
    ] = None,
) -> None:
    """Set a fault, from the next request on.

    It applies until you clear it or stop the lab.

    $ gpuctl lab fault set no-capacity us-east-1a
    """
    from lab.fault_kinds import parse
    from lab.fault_table import HARDWARE, SLOW_NETWORK, read, write
    from lab.lifecycle import target

    lab, wanted = chosen_target(context).chosen_lab, tuple(arguments or ())
    if name in ("spot-interruption", SLOW_NETWORK, HARDWARE):
        _require(lab)
        region = chosen_target(context).region or "us-east-1"
        wanted = _with_ids(name, wanted, target(lab, region))
    given = parse(name, wanted)
    _require(lab)
    before = read(lab.faults)
    now = before | {name: given}
    write(lab.faults, now)
    _apply(lab, {name}, before)
    text = []
    if name in ("reservation", "block"):
        kind = "capacity-block" if name == "block" else name
        text = [f"capacity: {{type: {kind}, id: {given[-2]}}}"]
    output(context).show({name: list(now[name]) for name in now}, text)


def _with_ids(name: str, arguments: tuple[str, ...], target: "Target") -> tuple[str, ...]:
    """Return the fault's arguments with the ids of the instances that they name."""
    from lab.machines.instance_names import instance_ids
    from provision.aws.clients import aws_errors, client

    if name == "spot-interruption":
        named = arguments[:-1] if arguments and arguments[-1].isdigit() else arguments
    elif name == "hardware":
        named = tuple(word for word in arguments if "=" not in word and ":" not in word)
        arguments = (*named, *(word for word in arguments if word not in named))
    else:
        named = arguments[:-1]
    spot = name == "spot-interruption"
    with aws_errors():
        ids = instance_ids(named, client(target, "ec2"), spot)
    return (*ids, *arguments[len(named) :])


def _apply(lab: "Places", changed: set[str], before: "dict[str, tuple[str, ...]]") -> None:
    """Let running machines show the faults that changed; `before` is the table until now."""
    from lab.fault_table import HARDWARE, SLOW_NETWORK
    from lab.machines import hardware_faults, slow_network

    if SLOW_NETWORK in changed:
        slow_network.limit_all(lab)
    if HARDWARE in changed:
        hardware_faults.apply(lab, before.get(HARDWARE, ()))


@fault.command("clear", cls=Command, epilog="lab.md")
def clear_fault(
    context: typer.Context,
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="FAULT", help="Faults to clear; by default all of them."),
    ] = None,
) -> None:
    """Clear all faults, or the named ones.

    $ gpuctl lab fault clear
    """
    from lab.fault_table import read, write

    lab = chosen_target(context).chosen_lab
    _require(lab)
    now = read(lab.faults)
    if unknown := sorted(set(names or ()) - set(now)):
        raise InputError(f"fault {unknown[0]} is not set", f"set are: {', '.join(now) or 'none'}")
    left = {name: now[name] for name in now if names and name not in names}
    write(lab.faults, left)
    _apply(lab, now.keys() - left.keys(), now)
    output(context).show({name: list(left[name]) for name in left}, ())


def _require(lab: "Places") -> None:
    """Raise InputError where the lab is down: stopping it clears its faults."""
    from lab.state import record

    if record(lab) is None:
        raise InputError("the lab is not running", f"start it with `{lab.command('start')}`")


@app.command(cls=Command, epilog="lab.md")
def start(context: typer.Context) -> None:
    """Start the lab, if it is not up.

    It removes what a crashed lab left. The first start makes the images, which takes minutes.

    $ gpuctl lab start
    """
    from lab.lifecycle import start as start_lab

    lab, out = chosen_target(context).chosen_lab, output(context)
    with out.progress() as view:
        start_lab(lab, view.report)
    _show(lab, out)


@app.command(cls=Command, epilog="lab.md")
def stop(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Stop every lab of this machine.")] = False,
) -> None:
    """Stop the lab and remove everything that it added to this machine.

    That is its machines, mounts, bridges, cgroups and rules. Its images stay.

    $ gpuctl lab stop
    $ gpuctl lab stop --all
    """
    from lab.lifecycle import present
    from lab.lifecycle import stop as stop_lab

    lab, out = chosen_target(context).chosen_lab, output(context)
    with out.progress() as view:
        for each in present() if every else (lab,):
            stop_lab(each, view.report)
    _show(lab, out)


@app.command(cls=Command, epilog="lab.md")
def status(
    context: typer.Context,
    leftovers: Annotated[
        bool, typer.Option("--leftovers", help="Only what a lab that is down left behind.")
    ] = False,
) -> None:
    """Show whether the lab runs, its machines, and other labs.

    $ gpuctl lab status
    $ gpuctl lab status --leftovers --lab=b
    """
    lab, out = chosen_target(context).chosen_lab, output(context)
    if leftovers:
        from lab.leftovers import found

        left = list(found(lab))
        out.show(left, left)
        return
    _show(lab, out)


@app.command(cls=Command, epilog="lab.md")
def images(
    context: typer.Context,
    flavours: Annotated[
        list[str] | None,
        typer.Argument(metavar="IMAGE", help="stock, dlami, frameworks; by default all."),
    ] = None,
) -> None:
    """Make the images that the lab's machines boot, if there are none.

    $ gpuctl lab images stock
    """
    from lab.images.image import FLAVOURS, ensure_image
    from lab.prerequisites import require

    wanted = [flavour for flavour in FLAVOURS if not flavours or flavour in flavours]
    if unknown := sorted(set(flavours or ()) - set(FLAVOURS)):
        raise InputError(f"no image {unknown[0]!r}", f"images are: {', '.join(FLAVOURS)}")
    require("images cannot be made")
    out = output(context)
    with out.progress() as view:
        paths = {flavour: str(ensure_image(flavour, view.report)) for flavour in wanted}
    out.show(paths, (f"{flavour:<10}  {path}" for flavour, path in paths.items()))


def _show(lab: "Places", out: "Output") -> None:
    from dataclasses import asdict

    from lab.lifecycle import others
    from lab.lifecycle import status as lab_status

    now, beside = lab_status(lab), others(lab)
    title = "The lab" if lab.is_default else f"Lab {lab.name}"
    text = [f"{title} is up: {_running(now)}" if now.up else f"{title} is down."]
    text += [f"  {machine}" for machine in now.machines]
    text += [f"Also up: lab {other.name}: {_running(other)}" for other in beside]
    out.show({**asdict(now), "others": [asdict(other) for other in beside]}, text)


def _running(lab: "LabStatus") -> str:
    return f"API {lab.api_url}, process {lab.pid}, {len(lab.machines)} machines"
