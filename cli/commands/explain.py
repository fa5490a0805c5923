"""`gpuctl explain NAME`: what a code or a field of a file means."""

from dataclasses import asdict
from typing import Annotated

import typer

from cli.options import output
from cli.render import explanation as view
from config import explanation


def explain(
    context: typer.Context,
    name: Annotated[
        str, typer.Argument(help="A code (E101, VcpuLimitExceeded) or a field (run.env).")
    ],
) -> None:
    """Say what a diagnostic, an error of AWS or a field means.

    $ gpuctl explain E101
    $ gpuctl explain VcpuLimitExceeded
    $ gpuctl explain cluster.capacity.type
    """
    explained = explanation.explain(name)
    output(context).show(asdict(explained), view.lines(explained))
