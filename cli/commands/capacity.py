"""`gpuctl capacity TYPE`: where the type is available, and its prices; it reserves nothing."""

from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from cli.options import chosen_target, output
from config.catalogue import instance_types
from config.quantities import money, price
from operations import capacity as operation

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.capacity import CapacityReport


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
        found = operation.find(here, instance_type, nodes=nodes, watcher=view)
    out.show(asdict(found), lines(found, out))


def lines(found: "CapacityReport", out: "Output") -> "Iterator[str]":
    """Yield zones with their spot price, then reservations, then blocks to buy."""
    yield (
        f"{found.instance_type} in {found.region}: on-demand {money(found.on_demand_usd_h)} per"
        f" hour (list price of {instance_types.PRICES_DATE}, us-east-1)"
    )
    yield ""
    spots = ((zone, found.spot_usd_h.get(zone)) for zone in found.zones)
    rows = [(zone, "-" if spot is None else price(spot)) for zone, spot in spots]
    yield from out.table(("ZONE", "SPOT PER HOUR"), rows, right=("SPOT PER HOUR",))
    yield ""
    yield "Reserved:" if found.reservations else "Nothing is reserved."
    reserved = [
        (
            reservation.id,
            reservation.type,
            reservation.zone,
            reservation.state,
            f"{reservation.free} of {reservation.total}",
            reservation.starts,
            reservation.ends,
        )
        for reservation in found.reservations
    ]
    if reserved:
        head = ("ID", "TYPE", "ZONE", "STATE", "FREE", "FROM", "UNTIL")
        yield from out.table(head, [[cell or "-" for cell in row] for row in reserved])
    yield ""
    sold = f"Capacity blocks to buy for {found.nodes} nodes:"
    yield sold if found.blocks else "AWS offers no capacity block of that size now."
    blocks = [
        (block.zone, str(block.hours), block.starts, money(block.upfront_usd), block.id)
        for block in found.blocks
    ]
    if blocks:
        columns = ("ZONE", "HOURS", "FROM", "UPFRONT", "ID")
        yield from out.table(columns, blocks, right=("HOURS", "UPFRONT"))
