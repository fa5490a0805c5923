"""Where an instance type is available, as text."""

from typing import TYPE_CHECKING

from config.catalogue.instance_types import PRICES_DATE
from config.quantities import money, price

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.capacity import CapacityReport


def capacity_lines(report: "CapacityReport", out: "Output") -> "Iterator[str]":
    """Yield zones with their spot price, then reservations, then blocks to buy."""
    yield (
        f"{report.instance_type} in {report.region}: on-demand {money(report.on_demand_usd_h)} per"
        f" hour (list price of {PRICES_DATE}, us-east-1)"
    )
    yield ""
    spots = ((zone, report.spot_usd_h.get(zone)) for zone in report.zones)
    rows = [(zone, "-" if spot is None else price(spot)) for zone, spot in spots]
    yield from out.table(("ZONE", "SPOT PER HOUR"), rows, right=("SPOT PER HOUR",))
    yield ""
    yield "Reserved:" if report.reservations else "Nothing is reserved."
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
        for reservation in report.reservations
    ]
    if reserved:
        head = ("ID", "TYPE", "ZONE", "STATE", "FREE", "FROM", "UNTIL")
        yield from out.table(head, [[cell or "-" for cell in row] for row in reserved])
    yield ""
    sold = f"Capacity blocks to buy for {report.nodes} nodes:"
    yield sold if report.blocks else "AWS offers no capacity block of that size now."
    blocks = [
        (block.zone, str(block.hours), block.starts, money(block.upfront_usd), block.id)
        for block in report.blocks
    ]
    if blocks:
        columns = ("ZONE", "HOURS", "FROM", "UPFRONT", "ID")
        yield from out.table(columns, blocks, right=("HOURS", "UPFRONT"))
