"""`gpuctl buy TYPE`: buy a capacity block that `gpuctl capacity` lists."""

from dataclasses import asdict
from typing import Annotated

import typer

from cli.arguments import TypeArgument
from cli.commands.capacity import (
    DaysOption,
    FromOption,
    NodesOption,
    block_size,
)
from cli.complete import zones
from cli.options import chosen_target, output
from cli.render import capacity as render
from config.quantities import money
from operations import capacity as operation


def buy(
    context: typer.Context,
    instance_type: TypeArgument,
    nodes: NodesOption = 1,
    days: DaysOption = 1,
    earliest: FromOption = None,
    zone: Annotated[
        str | None,
        typer.Option(
            metavar="ZONE", help="The block's zone; by default any.", autocompletion=zones
        ),
    ] = None,
    pay: Annotated[
        float | None,
        typer.Option(metavar="DOLLARS", help="The block's sum: buys it without a question."),
    ] = None,
) -> None:
    """Buy a capacity block.

    It is the earliest of those that `capacity` lists. AWS charges all of it at once, and never
    takes it back: gpuctl asks with the sum, and a script names the sum with --pay. A cluster file
    then names the block's id.

    $ gpuctl buy p5.48xlarge --nodes 2 --days 2
    $ gpuctl buy p5.48xlarge --nodes 2 --days 2 --zone us-east-1a --pay 5283.84
    """
    chosen, out = chosen_target(context), output(context)
    size = block_size(nodes, days, earliest)
    with out.progress() as view:
        block = operation.find_block(chosen, instance_type, size, zone=zone, watcher=view)
    out.confirm(
        f"AWS never takes a block back. Pay {money(block.upfront_usd)} now for {block.count} x"
        f" {instance_type} in {block.zone}, from {block.starts} until {block.ends}?",
        pay is not None,
        f"--pay {block.upfront_usd:.2f}",
    )
    reservation = operation.buy(chosen, block, block.upfront_usd if pay is None else pay)
    document = {**asdict(reservation), "upfront_usd": block.upfront_usd}
    out.show(document, render.bought_lines(reservation, block))
