"""`gpuctl support [RUN…]`: pack what somebody needs who is asked for help."""

from pathlib import Path
from typing import Annotated

import typer

from cli.complete import runs as run_names
from cli.options import chosen_target, output
from operations import support as operation


def support(
    context: typer.Context,
    run: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="RUN…",
            help="Runs whose events to pack: ids, or names of their latest.",
            autocompletion=run_names,
        ),
    ] = None,
    to: Annotated[
        Path, typer.Option("--output", "-o", metavar="FILE", help="The archive to write.")
    ] = Path("gpuctl-support.tar.gz"),
) -> None:
    """Pack what somebody needs who helps: versions, logs, events.

    Checks of this machine and the records of clusters are in it too. Secrets and what jobs printed
    are not packed. Names of clusters, hosts and accounts are: look through the archive before you
    send it.

    $ gpuctl support
    $ gpuctl support train-4f2a1c -o train.tar.gz
    """
    out = output(context)
    with out.progress() as view:
        names = operation.pack_support(chosen_target(context), to, runs=run or (), watcher=view)
    lines = [f"{to} has", *(f"  {name}" for name in names), "Look through it before you send it."]
    out.show({"file": str(to), "names": names}, lines)
