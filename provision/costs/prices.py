"""Prices of instances: AWS's price list of today, and the catalogue where it cannot be asked."""

import json
from dataclasses import dataclass
from typing import Any

from config.catalogue.instance_types import PRICES_DATE, price_usd_h
from config.cluster.resolved import Resolved
from config.errors import CloudError, InputError
from provision.aws.clients import aws_errors
from provision.costs.cost import hourly_usd

CATALOGUE = f"gpuctl's list of {PRICES_DATE}, us-east-1"


@dataclass(frozen=True)
class Price:
    """On-demand dollars per hour, None where not known, and where that comes from."""

    usd_h: float | None
    source: str


def catalogue_price(instance_type: str) -> Price:
    """The price in the catalogue."""
    return Price(price_usd_h(instance_type), CATALOGUE)


def price(instance_type: str, pricing: Any, region: str) -> Price:
    """The price in AWS's list for the region; CloudError where it cannot be asked.

    Linux, shared tenancy, nothing installed, on-demand: what RunInstances bills by default
    (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html,
    read 2026-11-20). A type that is not sold on-demand has none there: then the catalogue's.
    """
    wanted = {
        "instanceType": instance_type,
        "regionCode": region,
        "operatingSystem": "Linux",
        "tenancy": "Shared",
        "preInstalledSw": "NA",
        "capacitystatus": "Used",
    }
    with aws_errors():
        answer = pricing.get_products(
            ServiceCode="AmazonEC2",
            Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in wanted.items()],
        )
    for text in answer["PriceList"]:
        product = json.loads(text)
        if (usd := _hourly(product)) is not None:
            date = str(product.get("publicationDate", ""))[:10]
            return Price(usd, f"AWS's price list of {date}, {region}")
    return catalogue_price(instance_type)


def _hourly(product: Any) -> float | None:
    """The dollars per hour of an on-demand term, None where the product has none."""
    try:
        for term in product["terms"]["OnDemand"].values():
            for dimension in term["priceDimensions"].values():
                usd = float(dimension["pricePerUnit"].get("USD", 0))
                if dimension["unit"] == "Hrs" and usd > 0:
                    return usd
    except (KeyError, TypeError, ValueError, AttributeError) as error:
        raise CloudError(
            f"AWS's price list has a shape that gpuctl cannot read: {error}", ""
        ) from None
    return None


def total_usd(resolved: Resolved, hourly: float | None) -> float | None:
    """Dollars for all of `lifetime.max`; None where there is none, or no price is known."""
    lifetime = resolved.cluster.lifetime
    return None if lifetime is None or hourly is None else hourly * lifetime.max / 3600


def check_budget(resolved: Resolved) -> None:
    """The cluster costs no more than its file allows; raises InputError with both numbers."""
    budget = resolved.cluster.budget
    if budget is None:
        return
    hourly = hourly_usd(resolved)
    if hourly is None:
        raise InputError(
            f"budget: the price of {resolved.instance_type.name} is not known",
            "remove the budget, or choose a type that has a price",
        )
    total = total_usd(resolved, hourly)
    for name, most, cost in (
        ("max_hourly", budget.max_hourly, hourly),
        ("max_total", budget.max_total, total),
    ):
        if most is not None and cost is not None and cost > most:
            what = "an hour" if name == "max_hourly" else "lifetime.max"
            raise InputError(
                f"budget.{name}: {what} costs ${cost:,.2f}, at most ${most:,.2f} is allowed",
                "ask for fewer nodes, another type or a shorter lifetime, or allow more",
            )
