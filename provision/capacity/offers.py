"""The capacity of an instance type in a region, for people who have not written a file yet."""

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, date, datetime, time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any

from botocore.exceptions import ClientError

from config.catalogue.instance_types import nearest, price_usd_h
from config.cluster.resolved import OWNER_TAG
from config.command_text import command_text
from config.errors import CloudError, InputError
from config.quantities import money
from config.target import Target
from provision.aws.clients import aws_errors, client, request_pool
from provision.aws.instance_types import offers

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_LONGEST_DAYS = 182
"""Capacity blocks have 1 to 14 days, or a multiple of 7 up to this: "Find and purchase Capacity
Blocks", https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-purchase.html
(2026-11-28)."""

_NOT_SOLD = frozenset({"InvalidParameterValue", "Unsupported", "UnsupportedOperation"})


@dataclass(frozen=True)
class BlockSize:
    """The capacity block that somebody wants: `nodes`, `days`, and its first day at the earliest.

    Raises InputError for a number of days that no block has.
    """

    nodes: int = 1
    days: int = 1
    earliest: date | None = None

    def __post_init__(self) -> None:
        """Check the number of days."""
        if not (1 <= self.days <= 14 or (self.days % 7 == 0 and 14 < self.days <= _LONGEST_DAYS)):
            raise InputError(
                f"no capacity block has {self.days} days",
                f"1 to 14 days are possible, and multiples of 7 up to {_LONGEST_DAYS}",
            )

    @property
    def options(self) -> str:
        """Return the size as options of a command line."""
        earliest = f" --from {self.earliest}" if self.earliest else ""
        return f"--nodes {self.nodes} --days {self.days}{earliest}"


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
    """A capacity block for sale. `upfront_usd` pays for all `count` instances and all `hours`.

    `node_usd_h` is its share for an instance and an hour. Times are ISO 8601.
    """

    id: str
    zone: str
    count: int
    hours: int
    starts: str
    ends: str
    upfront_usd: float
    node_usd_h: float


@dataclass(frozen=True)
class CapacityReport:
    """The capacity of `instance_type` in `region`.

    `zones` offer the type. `spot_usd_h` is by zone. `on_demand_usd_h` is None if not known.
    """

    instance_type: str
    region: str
    size: BlockSize
    zones: tuple[str, ...]
    on_demand_usd_h: float | None
    spot_usd_h: dict[str, float]
    reservations: tuple[ReservedCapacity, ...]
    blocks: tuple[BlockOffering, ...]


def capacity(instance_type: str, size: BlockSize, target: Target) -> CapacityReport:
    """Return what AWS offers now; create nothing. All requests are sent at once.

    `blocks` are those of the size, the earliest first. Raises InputError if the region does not
    have the type, CloudError if AWS does not answer.
    """
    ec2 = client(target, "ec2")
    with request_pool(4) as pool:
        offering = pool.submit(offers, ec2, (instance_type,))
        spot = pool.submit(_optional, lambda: _spot(ec2, instance_type))
        ours = pool.submit(_reservations, ec2, instance_type)
        blocks = pool.submit(_optional, lambda: _blocks(ec2, instance_type, size))
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
            size=size,
            zones=zones,
            on_demand_usd_h=price_usd_h(instance_type),
            spot_usd_h=dict(spot.result()),
            reservations=tuple(ours.result()),
            blocks=tuple(blocks.result()),
        )


def find_block(
    instance_type: str, size: BlockSize, zone: str | None, target: Target
) -> BlockOffering:
    """Return the earliest block that AWS offers now, in the zone if one is given.

    An id of an offer of an earlier request is of no use: each request gets new ones. Raises
    InputError if AWS offers none.
    """
    blocks = _blocks(client(target, "ec2"), instance_type, size)
    for block in blocks:
        if zone in (None, block.zone):
            return block
    raise InputError(
        f"AWS offers no capacity block of {instance_type} with {size.options} now"
        f"{f' in {zone}' if zone else ''}",
        "try fewer nodes, other days or another region",
    )


def buy_block(block: BlockOffering, owner: str, target: Target) -> ReservedCapacity:
    """Buy the block, which AWS charges at once and never takes back; return the reservation.

    It gets the tag of its `owner`, and none of a cluster: `gpuctl down` and `gpuctl gc` ignore it.
    The request is sent once: it has no ClientToken, so AWS could sell a block for each
    (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_PurchaseCapacityBlock.html,
    2026-11-28).
    """
    ec2 = client(target, "ec2", attempts=1)
    tag: Any = {"Key": OWNER_TAG, "Value": owner}
    try:
        with aws_errors():
            reservation = ec2.purchase_capacity_block(
                CapacityBlockOfferingId=block.id,
                InstancePlatform="Linux/UNIX",
                TagSpecifications=[{"ResourceType": "capacity-reservation", "Tags": [tag]}],
            )["CapacityReservation"]
    except CloudError as error:
        if _is_refusal(error.__cause__):
            raise
        lists = "aws ec2 describe-capacity-reservations --region {}"
        raise CloudError(
            f"AWS may have sold the block, and charged {money(block.upfront_usd)}: {error.message}",
            f"{command_text(lists, target.region)} lists it if so; buy again only if it does not",
            error.code,
        ) from error
    return _reserved(reservation)


def _is_refusal(cause: BaseException | None) -> bool:
    """Return whether AWS decided against the request; a server error may come after a purchase."""
    if not isinstance(cause, ClientError):
        return False
    return cause.response["ResponseMetadata"]["HTTPStatusCode"] < HTTPStatus.INTERNAL_SERVER_ERROR


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
    names: Any = [instance_type]
    with aws_errors():
        history = ec2.describe_spot_price_history(
            InstanceTypes=names,
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
                {"Name": "state", "Values": ["active", "scheduled", "pending", "payment-pending"]},
            ]
        )
        reservations: list[Any] = list(pages.search("CapacityReservations[]"))
    reservations.sort(
        key=lambda reservation: (reservation["AvailabilityZone"], reservation["CreateDate"])
    )
    return [_reserved(reservation) for reservation in reservations]


def _reserved(reservation: Any) -> ReservedCapacity:
    kind = reservation.get("ReservationType")
    return ReservedCapacity(
        id=reservation["CapacityReservationId"],
        type="capacity-block" if kind == "capacity-block" else "reservation",
        zone=reservation["AvailabilityZone"],
        state=reservation["State"],
        total=reservation["TotalInstanceCount"],
        free=reservation["AvailableInstanceCount"],
        starts=_iso(reservation.get("StartDate") or reservation["CreateDate"]),
        ends=_iso(reservation["EndDate"]) if reservation.get("EndDate") else None,
    )


def _blocks(ec2: "EC2Client", instance_type: str, size: BlockSize) -> list[BlockOffering]:
    """Return the blocks on offer, the earliest first."""
    starts: Any = {}
    if size.earliest:
        starts = {"StartDateRange": datetime.combine(size.earliest, time(tzinfo=UTC))}
    with aws_errors():
        pages = ec2.get_paginator("describe_capacity_block_offerings").paginate(
            InstanceType=instance_type,
            InstanceCount=size.nodes,
            CapacityDurationHours=24 * size.days,
            **starts,
        )
        offers = [offer for page in pages for offer in page["CapacityBlockOfferings"]]
    offers.sort(key=lambda offer: (offer["StartDate"], offer["AvailabilityZone"]))
    return [_block(offer) for offer in offers]


def _block(offer: Any) -> BlockOffering:
    upfront, count = float(offer["UpfrontFee"]), offer["InstanceCount"]
    hours = offer["CapacityBlockDurationHours"]
    return BlockOffering(
        id=offer["CapacityBlockOfferingId"],
        zone=offer["AvailabilityZone"],
        count=count,
        hours=hours,
        starts=_iso(offer["StartDate"]),
        ends=_iso(offer["EndDate"]),
        upfront_usd=upfront,
        node_usd_h=round(upfront / count / hours, 4),
    )


def _iso(moment: datetime) -> str:
    return moment.astimezone(UTC).isoformat(timespec="minutes")
