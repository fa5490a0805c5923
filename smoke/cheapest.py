"""The cheapest instance type with a GPU and EFA, by AWS's prices of today."""

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from config.catalogue.instance_types import catalogue
from config.errors import CloudError
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.instance_types import availability_zones, offers
from provision.billing.prices import price

_SHORT_LIST = 6
"""The number of types that AWS is asked for prices of: the cheapest of the catalogue."""


@dataclass(frozen=True)
class Choice:
    """The chosen type, dollars per hour, and where the price is from."""

    instance_type: str
    usd_h: float
    source: str


def candidates() -> tuple[str, ...]:
    """Return the cheapest types of the catalogue whose EFA has RDMA read, cheapest first.

    They have a GPU, because gpuctl proves RDMA by NCCL's lines.
    """
    known = catalogue().items()
    fitting = [
        (entry.price_usd_h, name)
        for name, entry in known
        if entry.price_usd_h is not None
        and entry.gpu.count
        and entry.network.max_efa
        and entry.rdma.read
        and "spot" in entry.usage_classes
    ]
    return tuple(name for _, name in sorted(fitting)[:_SHORT_LIST])


def cheapest(target: Target) -> Choice:
    """Return the cheapest candidate that the region offers, by spot price if AWS has one.

    Without spot prices it is the cheapest on demand. Raises CloudError if no candidate is offered.
    """
    ec2, names = client(target, "ec2"), candidates()
    zones = offers(ec2, names)
    offered = [name for name in names if availability_zones(target.region, zones[name])]
    if not offered:
        raise CloudError(
            f"{target.region} offers none of {', '.join(names)}", "choose another region"
        )
    choices = _spot(target, offered)
    if not choices:
        pricing = client(target, "pricing")
        for name in offered:
            known = price(name, pricing, target.region)
            if known.usd_h is not None:
                choices.append(Choice(name, known.usd_h, f"on demand, {known.source}"))
    return min(choices, key=lambda choice: choice.usd_h)


def _spot(target: Target, names: Sequence[str]) -> list[Choice]:
    """Return the lowest spot price of each type now; none if AWS does not answer."""
    now = datetime.now(UTC)
    try:
        with aws_errors():
            history = client(target, "ec2").describe_spot_price_history(
                InstanceTypes=names,  # type: ignore[arg-type]
                ProductDescriptions=["Linux/UNIX"],
                StartTime=now,  # the price that holds now, one entry for each zone
                EndTime=now,
            )["SpotPriceHistory"]
    except CloudError:
        return []  # the on-demand prices are used, and the record has the refusal
    lowest: dict[str, float] = {}
    for entry in history:
        name, usd = str(entry["InstanceType"]), float(entry["SpotPrice"])
        lowest[name] = min(usd, lowest.get(name, usd))
    return [Choice(name, usd, "spot, lowest zone") for name, usd in lowest.items()]
