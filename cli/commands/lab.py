"""`gpuctl lab start|stop|status|images|fault`: an AWS region on this machine, or several."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import chosen_target, output
from cli.parser import Command, CommandGroup
from operations import lab, lab_faults

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.lab import Labs, LabStatus
    from operations.lab_faults import Faults

app = typer.Typer(
    cls=CommandGroup,
    help="The lab: an AWS region on this machine, to rehearse in.\n\n"
    "$ gpuctl lab start\n$ gpuctl lab status --lab=b",
    epilog="do/rehearse.md",
    no_args_is_help=True,
    add_completion=False,
    rich_markup_mode=None,
)


fault = typer.Typer(
    cls=CommandGroup,
    help="Faults, with which the lab answers AWS's errors, to rehearse failures.\n\n"
    "$ gpuctl lab fault list\n$ gpuctl lab fault set no-capacity us-east-1a",
    epilog="do/rehearse.md",
    no_args_is_help=True,
    rich_markup_mode=None,
)
app.add_typer(fault, name="fault")


@fault.command("list", cls=Command, epilog="look-up/lab-faults.md")
def list_faults(context: typer.Context) -> None:
    """Show every fault that the lab can inject, and those that are set.

    $ gpuctl lab fault list
    """
    out, now = output(context), lab_faults.current(chosen_target(context))
    out.show({name: list(arguments) for name, arguments in now.items()}, _faults(now, out))


def _faults(now: "Faults", out: "Output") -> "Iterator[str]":
    rows = []
    for name, kind in lab_faults.FAULTS.items():
        rows.append(("set" if name in now else "", f"{name} {kind.usage}", kind.code))
        rows.append(("", "", kind.meaning))
        if name in now:
            rows.append(("", "", f"now: {' '.join((name, *now[name]))}"))
    yield from out.table(("NOW", "FAULT", "AWS'S CODE, AND WHAT IT MEANS"), rows, drop=())


@fault.command("set", cls=Command, epilog="look-up/lab-faults.md")
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
    now = lab_faults.set_fault(chosen_target(context), name, arguments or ())
    text = []
    if name in ("reservation", "block"):
        kind = "capacity-block" if name == "block" else name
        text = [f"capacity: {{type: {kind}, id: {now[name][-2]}}}"]
    output(context).show({fault: list(now[fault]) for fault in now}, text)


@fault.command("clear", cls=Command, epilog="look-up/lab-faults.md")
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
    left = lab_faults.clear(chosen_target(context), names or ())
    output(context).show({name: list(left[name]) for name in left}, ())


@app.command(cls=Command, epilog="do/rehearse.md")
def start(context: typer.Context) -> None:
    """Start the lab, if it is not up.

    It removes what a crashed lab left. The first start makes the images, which takes minutes.

    $ gpuctl lab start
    """
    out = output(context)
    with out.progress() as view:
        labs = lab.start(chosen_target(context), watcher=view)
    _show(labs, out)


@app.command(cls=Command, epilog="do/rehearse.md")
def stop(
    context: typer.Context,
    every: Annotated[bool, typer.Option("--all", help="Stop every lab of this machine.")] = False,
) -> None:
    """Stop the lab and remove everything that it added to this machine.

    That is its machines, mounts, bridges, cgroups and rules. Its images stay.

    $ gpuctl lab stop
    $ gpuctl lab stop --all
    """
    out = output(context)
    with out.progress() as view:
        labs = lab.stop(chosen_target(context), every=every, watcher=view)
    _show(labs, out)


@app.command(cls=Command, epilog="do/rehearse.md")
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
    chosen, out = chosen_target(context), output(context)
    if leftovers:
        left = list(lab.leftovers(chosen))
        out.show(left, left)
        return
    _show(lab.status(chosen), out)


@app.command(cls=Command, epilog="do/rehearse.md")
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
    out = output(context)
    with out.progress() as view:
        paths = lab.images(flavours or (), watcher=view)
    document = {flavour: str(path) for flavour, path in paths.items()}
    out.show(document, (f"{flavour:<10}  {path}" for flavour, path in paths.items()))


def _show(labs: "Labs", out: "Output") -> None:
    now = labs.chosen
    title = "The lab" if labs.is_default else f"Lab {labs.name}"
    text = [f"{title} is up: {_running(now)}" if now.up else f"{title} is down."]
    text += [f"  {machine}" for machine in now.machines]
    text += [f"Also up: lab {other.name}: {_running(other)}" for other in labs.others]
    out.show({**asdict(now), "others": [asdict(other) for other in labs.others]}, text)


def _running(status: "LabStatus") -> str:
    return f"API {status.api_url}, process {status.pid}, {len(status.machines)} machines"
