"""`gpuctl capacity TYPE`: where the type is available, and its prices; it reserves nothing."""

from dataclasses import asdict
from typing import Annotated

import typer

from cli.options import chosen_target, output
from cli.render import capacity as render
from operations import capacity as operation


def capacity(
    context: typer.Context,
    instance_type: Annotated[str, typer.Argument(metavar="TYPE", help="EC2 instance type.")],
    nodes: Annotated[
        int, typer.Option(metavar="N", min=1, help="How many nodes a block is to have.")
    ] = 1,
) -> None:
    """Show where an instance type is available, and its prices.

    That is: zones that offer TYPE, your reservations and blocks, blocks to buy, and spot prices.

    $ gpuctl capacity p5.48xlarge
    $ gpuctl capacity p5.48xlarge --nodes 4 --region us-east-2
    """
    here, out = chosen_target(context), output(context)
    with out.progress() as view:
        capacity_report = operation.find(here, instance_type, nodes=nodes, watcher=view)
    out.show(asdict(capacity_report), render.capacity_lines(capacity_report, out))
