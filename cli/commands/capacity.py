"""`gpuctl capacity TYPE`: where the type is available, and its prices; it reserves nothing."""

from dataclasses import asdict
from datetime import datetime
from typing import Annotated

import typer

from cli.arguments import TypeArgument
from cli.options import chosen_target, output
from cli.render import capacity as render
from operations import capacity as operation

NodesOption = Annotated[
    int, typer.Option("--nodes", metavar="N", min=1, help="How many nodes a block is to have.")
]
DaysOption = Annotated[
    int, typer.Option("--days", metavar="N", min=1, help="How many days a block is to have.")
]
FromOption = Annotated[
    datetime | None,
    typer.Option(
        "--from",
        metavar="DATE",
        formats=["%Y-%m-%d"],
        help="The first day of a block at the earliest: 2026-12-01.",
    ),
]


def block_size(nodes: int, days: int, earliest: datetime | None) -> "operation.BlockSize":
    """Return the size that the options describe; InputError if no block has it."""
    return operation.BlockSize(nodes, days, earliest.date() if earliest else None)


def capacity(
    context: typer.Context,
    instance_type: TypeArgument,
    nodes: NodesOption = 1,
    days: DaysOption = 1,
    earliest: FromOption = None,
) -> None:
    """Show where an instance type is available, and its prices.

    That is: zones that offer TYPE, your reservations and blocks, blocks to buy, and spot prices.

    $ gpuctl capacity p5.48xlarge
    $ gpuctl capacity p5.48xlarge --nodes 4 --days 7 --region us-east-2
    """
    chosen, out = chosen_target(context), output(context)
    size = block_size(nodes, days, earliest)
    with out.progress() as view:
        report = operation.find(chosen, instance_type, size, watcher=view)
    out.show(asdict(report), render.capacity_lines(report, out))
