"""The lab's price list: GetProducts for the catalogue's types, in AWS's format.

Format: "Using the AWS Price List Query API"
(https://docs.aws.amazon.com/awsaccountbilling/latest/aboutv2/using-price-list-query-api.html,
read 2026-11-20): a list of strings, each of which is a product in JSON. All regions have the prices
of us-east-1. A type without a price has no product, like p5e.48xlarge on AWS.
"""

import hashlib
import json
from collections.abc import Mapping
from typing import Any

from config.catalogue.instance_types import BASTION_TYPE, PRICES_DATE, catalogue, price_usd_h

_CPU_PRICES = {
    "c6i.large": 0.085,
    "c7i.large": 0.08925,
    "m6i.large": 0.096,
    "t3.micro": 0.0104,
    "t3.medium": 0.0416,
}
"""USD per hour of a few types without GPUs, on-demand Linux in us-east-1
(https://aws.amazon.com/ec2/pricing/on-demand, from memory)."""


def answer(action: str, request: Mapping[str, Any]) -> dict[str, Any]:
    """Return the Pricing API's answer to `action`; KeyError for any action but GetProducts."""
    if action != "GetProducts":
        raise KeyError(action)
    filters = {f["Field"]: f["Value"] for f in request.get("Filters", ())}
    region = filters.get("regionCode", "us-east-1")
    names = (*catalogue(), BASTION_TYPE, *_CPU_PRICES)
    products = [product for name in names if (product := _product(name, region)) is not None]
    matching = [
        json.dumps(product)
        for product in products
        if all(product["product"]["attributes"].get(key) == filters[key] for key in filters)
    ]
    return {"FormatVersion": "aws_v1", "PriceList": matching}


def _product(name: str, region: str) -> dict[str, Any] | None:
    price = _CPU_PRICES.get(name, price_usd_h(name))
    if price is None:
        return None
    sku = hashlib.sha256(name.encode()).hexdigest()[:16].upper()
    offer, rate = "JRTCKXETXF", "6YS6EN2CT7"  # AWS's codes for on-demand and for hours
    return {
        "product": {
            "productFamily": "Compute Instance",
            "attributes": {
                "instanceType": name,
                "operatingSystem": "Linux",
                "tenancy": "Shared",
                "preInstalledSw": "NA",
                "capacitystatus": "Used",
                "regionCode": region,
                "servicecode": "AmazonEC2",
            },
            "sku": sku,
        },
        "serviceCode": "AmazonEC2",
        "terms": {
            "OnDemand": {
                f"{sku}.{offer}": {
                    "priceDimensions": {
                        f"{sku}.{offer}.{rate}": {
                            "unit": "Hrs",
                            "description": f"${price} per On Demand Linux {name} Instance Hour",
                            "rateCode": f"{sku}.{offer}.{rate}",
                            "pricePerUnit": {"USD": f"{price:.10f}"},
                        }
                    },
                    "sku": sku,
                    "effectiveDate": f"{PRICES_DATE}T00:00:00Z",
                    "offerTermCode": offer,
                }
            }
        },
        "version": PRICES_DATE.replace("-", ""),
        "publicationDate": f"{PRICES_DATE}T00:00:00Z",
    }
