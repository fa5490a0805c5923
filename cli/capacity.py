"""`gpuctl capacity TYPE`: where there is some, and what it costs; nothing is made or claimed."""

from typing import TYPE_CHECKING, Annotated

import typer

from cli.plan import JsonOption
from cli.session import progress, session

if TYPE_CHECKING:
    from provision.capacity import Capacity


def capacity(
    context: typer.Context,
    instance_type: Annotated[str, typer.Argument(metavar="TYPE", help="EC2 instance type.")],
    nodes: Annotated[int, typer.Option(min=1, help="How many nodes a block is to have.")] = 1,
    as_json: JsonOption = False,
) -> None:
    """Show zones that offer TYPE, your reservations and blocks, blocks to buy, and spot prices."""
    from dataclasses import asdict

    from cli.terminal import say, say_json

    here = session(context)
    with progress(as_json) as view:
        here.ensure_lab(view)
    from provision.capacity import capacity as ask

    found = ask(instance_type, nodes, here.target())
    if as_json:
        say_json(asdict(found))
    else:
        say("\n".join(lines(found)))


def lines(found: "Capacity") -> list[str]:
    """Zones with their spot price, then what is reserved, then what could be."""
    from cli.terminal import money, price
    from config.catalogue.instance_types import PRICES_DATE

    text = [
        f"{found.instance_type} in {found.region}: on-demand {money(found.on_demand_usd_h)} per"
        f" hour (list price of {PRICES_DATE}, us-east-1)",
        "",
        f"{'ZONE':<16} {'SPOT PER HOUR':>14}",
    ]
    for zone in found.zones:
        spot = found.spot_usd_h.get(zone)
        text.append(f"{zone:<16} {'-' if spot is None else price(spot):>14}")
    text += ["", "Reserved:" if found.reservations else "Nothing is reserved."]
    for one in found.reservations:
        until = f" until {one.ends}" if one.ends else ""
        text.append(
            f"  {one.id}  {one.type}  {one.zone}  {one.state}  {one.free} of {one.total} free"
            f"  from {one.starts}{until}"
        )
    sold = f"Capacity blocks to buy for {found.nodes} nodes:"
    text += ["", sold if found.blocks else "AWS offers no capacity block of that size now."]
    for block in found.blocks:
        text.append(
            f"  {block.zone}  {block.hours}h from {block.starts}  {money(block.upfront_usd)}"
            f" upfront  {block.id}"
        )
    return text
