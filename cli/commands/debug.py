"""`gpuctl debug RUN`: what the ranks of a run do now, and a debugger for one of them."""

from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer

from cli import openssh
from cli.arguments import RunArgument
from cli.options import chosen_target, output
from cli.render import exec_output
from config.errors import InputError
from operations import debug as ranks

if TYPE_CHECKING:
    from cli.output import Output


def debug(
    context: typer.Context,
    run: RunArgument,
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A command for the rank; {pid} is its process."),
    ] = None,
    rank: Annotated[
        int | None, typer.Option(metavar="N", min=0, help="The stacks of this rank alone.")
    ] = None,
    port: Annotated[
        list[int] | None,
        typer.Option(
            metavar="PORT", min=1, max=65535, help="Forward this port to the rank's node."
        ),
    ] = None,
) -> None:
    """Show what the ranks of a run do now, without pausing them.

    With --rank it shows the stacks of all threads of one rank, or runs a command for its process in
    a terminal on its node. py-spy is there.

    $ gpuctl debug train
    $ gpuctl debug train --rank 5
    $ gpuctl debug train --rank 5 -- py-spy top --pid {pid}
    $ gpuctl debug train --rank 5 -- gdb -p {pid}
    """
    chosen, out = chosen_target(context), output(context)
    if command and rank is None:
        raise InputError("a command is for one rank", "write `--rank N` in front of it")
    if command and out.as_json:
        raise InputError("what a terminal shows has no JSON form", "leave `--json` out")
    if port and not command:
        raise InputError("--port is for a command", "write the command behind `--`")
    with out.progress() as view:
        examined = ranks.examine(chosen, run, watcher=view)
    if command and rank is not None:
        line = exec_output.shell_line(command)
        openssh.become(ranks.debug_command(examined, rank, line, port or ()))
    seen, record = examined.seen, examined.record
    shown = seen.processes if rank is None else examined.of_rank(rank)
    document = {"run_id": record.run_id, **seen.model_dump(mode="json")}
    document["processes"] = [process.model_dump(mode="json") for process in shown]
    if rank is None:
        out.show(document, _lines(examined, out))
        return
    out.show(document, ())
    for process in shown:
        label = process.node if process.rank is None else f"rank {process.rank} ({process.node})"
        out.pass_on(f"{label}: {process.command}, pid {process.pid}\n{process.threads.rstrip()}")


def _lines(examined: "ranks.Examined", out: "Output") -> Iterator[str]:
    processes, silent = examined.seen.processes, examined.seen.silent
    rows = [
        ["-" if each.rank is None else str(each.rank), each.node, str(each.pid), each.where]
        for each in processes
    ]
    if rows:
        yield from out.table(["RANK", "NODE", "PID", "NOW"], rows, drop=(), sentences="NOW")
        yield ""
    for name, why in silent.items():
        yield f"{name} gave no answer: {why}"
    yield f"If the job hangs: {examined.seen.verdict}"
