"""Prices of instances: AWS's price list of today, or gpuctl's catalogue if AWS does not answer."""

import json
from dataclasses import dataclass
from typing import Any

from config.catalogue.instance_types import PRICES_DATE, price_usd_h
from config.cluster.resolved import Resolved
from config.errors import CloudError, InputError
from provision.aws.clients import aws_errors
from provision.billing.cost import hourly_usd

CATALOGUE = f"gpuctl's list of {PRICES_DATE}, us-east-1"


@dataclass(frozen=True)
class Price:
    """An on-demand price in dollars per hour, None if not known, and its source."""

    usd_h: float | None
    source: str


def catalogue_price(instance_type: str) -> Price:
    """Return the price in gpuctl's catalogue."""
    return Price(price_usd_h(instance_type), CATALOGUE)


def price(instance_type: str, pricing: Any, region: str) -> Price:
    """Return the price in AWS's list for the region; raise CloudError if AWS does not answer.

    The price is for Linux, shared tenancy, no installed software, on-demand, which RunInstances
    bills by default
    (https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html,
    read 2026-11-20). A type that is not sold on-demand has none there; the catalogue's is returned.
    """
    attributes = {
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
            Filters=[{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in attributes.items()],
        )
    for text in answer["PriceList"]:
        product = json.loads(text)
        if (usd := _hourly(product)) is not None:
            date = str(product.get("publicationDate", ""))[:10]
            return Price(usd, f"AWS's price list of {date}, {region}")
    return catalogue_price(instance_type)


def _hourly(product: Any) -> float | None:
    """Return the dollars per hour of an on-demand term, None if the product has none."""
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
    """Return the dollars for all of `lifetime.max`; None without it, or if no price is known."""
    lifetime = resolved.cluster.lifetime
    return None if lifetime is None or hourly is None else hourly * lifetime.max / 3600


def check_budget(resolved: Resolved) -> None:
    """Raise InputError with both numbers if the cluster costs more than its budget."""
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
            shorter = "" if name == "max_hourly" else ", a shorter lifetime"
            raise InputError(
                f"budget.{name}: {what} costs ${cost:,.2f}, at most ${most:,.2f} is allowed",
                f"ask for fewer nodes or another type{shorter}, or allow more: budget.{name}",
            )
