"""Where an instance type is available, as text."""

from typing import TYPE_CHECKING

from config.catalogue.instance_types import PRICES_DATE
from config.command_text import command_text
from config.quantities import money, price

if TYPE_CHECKING:
    from collections.abc import Iterator

    from cli.output import Output
    from operations.capacity import BlockOffering, CapacityReport, ReservedCapacity

DROP = ("HOURS", "UNTIL")
"""The columns of the blocks for sale that a narrow terminal lacks, the first of them first."""

DROP_OF_RESERVED = ("FROM", "TYPE", "UNTIL", "ZONE")
"""The same of the account's reservations and blocks."""


def capacity_lines(report: "CapacityReport", out: "Output") -> "Iterator[str]":
    """Yield zones with their spot price, then reservations, then blocks to buy."""
    yield (
        f"{report.instance_type} in {report.region}: on-demand {money(report.on_demand_usd_h)} per"
        f" hour (list price of {PRICES_DATE}, us-east-1)"
    )
    yield ""
    spots = ((zone, report.spot_usd_h.get(zone)) for zone in report.zones)
    rows = [(zone, "-" if spot is None else price(spot)) for zone, spot in spots]
    yield from out.table(("ZONE", "SPOT PER HOUR"), rows, right=("SPOT PER HOUR",), drop=())
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
        cells = [[cell or "-" for cell in row] for row in reserved]
        yield from out.table(head, cells, drop=DROP_OF_RESERVED)
    yield ""
    size = report.size.options
    if not report.blocks:
        yield f"AWS offers no capacity block of that size now ({size})."
        return
    yield f"Capacity blocks to buy ({size}):"
    blocks = [
        (
            block.zone,
            str(block.hours),
            block.starts,
            block.ends,
            price(block.node_usd_h),
            money(block.upfront_usd),
        )
        for block in report.blocks
    ]
    columns = ("ZONE", "HOURS", "FROM", "UNTIL", "NODE PER HOUR", "SUM")
    yield from out.table(columns, blocks, right=("HOURS", "NODE PER HOUR", "SUM"), drop=DROP)
    yield f"Buy the first: {command_text(f'gpuctl buy {{}} {size}', report.instance_type)}"


def bought_lines(reservation: "ReservedCapacity", block: "BlockOffering") -> "Iterator[str]":
    """Yield what was bought, and how a cluster file names it."""
    yield (
        f"{reservation.id} is bought for {money(block.upfront_usd)} ({reservation.state}):"
        f" {reservation.total} nodes in {reservation.zone}, from {reservation.starts} until"
        f" {reservation.ends}"
    )
    yield "Write into the cluster file:"
    yield f"  capacity: {{type: capacity-block, id: {reservation.id}}}"
