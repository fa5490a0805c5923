"""The capacity of an instance type in a region, for people who have not written a file yet."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from config.catalogue.instance_types import nearest, price_usd_h
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.concurrency import request_pool
from provision.aws.instance_types import offers

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

BLOCK_HOURS = 24
"""The shortest capacity block: "How Capacity Blocks work" (2026-11-20), one day."""

_NOT_SOLD = frozenset({"InvalidParameterValue", "Unsupported", "UnsupportedOperation"})


@dataclass(frozen=True)
class ReservedCapacity:
    """A reservation or block of this account. Times are ISO 8601; `ends` is None without an end."""

    id: str
    type: str
    zone: str
    state: str
    total: int
    free: int
    starts: str
    ends: str | None


@dataclass(frozen=True)
class BlockOffering:
    """A capacity block for sale. `upfront_usd` pays for all `count` instances and all `hours`."""

    id: str
    zone: str
    count: int
    hours: int
    starts: str
    upfront_usd: float


@dataclass(frozen=True)
class CapacityReport:
    """The capacity of `instance_type` in `region`.

    `zones` offer the type. `spot_usd_h` is by zone. `on_demand_usd_h` is None if not known.
    """

    instance_type: str
    region: str
    nodes: int
    zones: tuple[str, ...]
    on_demand_usd_h: float | None
    spot_usd_h: dict[str, float]
    reservations: tuple[ReservedCapacity, ...]
    blocks: tuple[BlockOffering, ...]


def capacity(instance_type: str, nodes: int, target: Target) -> CapacityReport:
    """Return what AWS offers now; create nothing. All requests are sent at once.

    Blocks are offers of a day for `nodes` instances. Raises InputError if the region does not have
    the type, CloudError if AWS does not answer.
    """
    ec2 = client(target, "ec2")
    with request_pool(4) as pool:
        offering = pool.submit(offers, ec2, (instance_type,))
        spot = pool.submit(_optional, lambda: _spot(ec2, instance_type))
        ours = pool.submit(_reservations, ec2, instance_type)
        blocks = pool.submit(_optional, lambda: _blocks(ec2, instance_type, nodes))
        zones = tuple(sorted(offering.result()[instance_type]))
        if not zones:
            names = nearest(instance_type)
            raise InputError(
                f"no zone of {target.region} offers {instance_type}",
                f"nearest names: {', '.join(names)}" if names else "choose another type or region",
            )
        return CapacityReport(
            instance_type=instance_type,
            region=target.region,
            nodes=nodes,
            zones=zones,
            on_demand_usd_h=price_usd_h(instance_type),
            spot_usd_h=dict(spot.result()),
            reservations=tuple(ours.result()),
            blocks=tuple(blocks.result()),
        )


def _optional(ask: Callable[[], Iterable[Any]]) -> list[Any]:
    """Return what `ask` returns, or nothing if AWS does not sell the type in this way."""
    try:
        return list(ask())
    except CloudError as error:
        if error.code in _NOT_SOLD:
            return []
        raise


def _spot(ec2: "EC2Client", instance_type: str) -> list[tuple[str, float]]:
    """Return the newest price of each zone. EC2 returns current prices for a StartTime of now."""
    asked: Any = [instance_type]
    with aws_errors():
        history = ec2.describe_spot_price_history(
            InstanceTypes=asked,
            ProductDescriptions=["Linux/UNIX"],
            StartTime=datetime.now(UTC),
        )["SpotPriceHistory"]
    newest = sorted(history, key=lambda price: price["Timestamp"])
    prices = {price["AvailabilityZone"]: float(price["SpotPrice"]) for price in newest}
    return sorted(prices.items())


def _reservations(ec2: "EC2Client", instance_type: str) -> list[ReservedCapacity]:
    with aws_errors():
        pages = ec2.get_paginator("describe_capacity_reservations").paginate(
            Filters=[
                {"Name": "instance-type", "Values": [instance_type]},
                {"Name": "state", "Values": ["active", "scheduled", "pending"]},
            ]
        )
        found: list[Any] = list(pages.search("CapacityReservations[]"))
    return [
        ReservedCapacity(
            id=offering["CapacityReservationId"],
            type="capacity-block"
            if offering.get("ReservationType") == "capacity-block"
            else "reservation",
            zone=offering["AvailabilityZone"],
            state=offering["State"],
            total=offering["TotalInstanceCount"],
            free=offering["AvailableInstanceCount"],
            starts=_iso(offering.get("StartDate") or offering["CreateDate"]),
            ends=_iso(offering["EndDate"]) if offering.get("EndDate") else None,
        )
        for offering in sorted(found, key=lambda one: (one["AvailabilityZone"], one["CreateDate"]))
    ]


def _blocks(ec2: "EC2Client", instance_type: str, nodes: int) -> list[BlockOffering]:
    with aws_errors():
        offers = ec2.describe_capacity_block_offerings(
            InstanceType=instance_type, InstanceCount=nodes, CapacityDurationHours=BLOCK_HOURS
        )["CapacityBlockOfferings"]
    return [
        BlockOffering(
            id=offer["CapacityBlockOfferingId"],
            zone=offer["AvailabilityZone"],
            count=offer["InstanceCount"],
            hours=offer["CapacityBlockDurationHours"],
            starts=_iso(offer["StartDate"]),
            upfront_usd=float(offer["UpfrontFee"]),
        )
        for offer in sorted(offers, key=lambda o: (o["StartDate"], o["AvailabilityZone"]))
    ]


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="minutes")
