"""What a cluster costs: per hour from its plan, so far from when its parts came to be."""

import re
from collections.abc import Iterable
from datetime import datetime

from config.catalogue import NAT_PRICE_USD_H, PUBLIC_IPV4_PRICE_USD_H, price_usd_h
from config.resolved import Resolved
from provision.resources import Resource

_ENDED = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def hourly_usd(resolved: Resolved) -> float | None:
    """Dollars per hour of the whole fleet, None if not known.

    That is nodes, bastion, NAT gateway, and the public addresses of the last two. Nodes count at
    their on-demand price; spot instances cost less.
    """
    node, bastion = resolved.instance_type.price_usd_h, resolved.bastion_price_usd_h
    if node is None or bastion is None:
        return None
    access = bastion + resolved.nat_price_usd_h + 2 * PUBLIC_IPV4_PRICE_USD_H
    return resolved.cluster.nodes * node + access


def price_of(resource: Resource) -> float | None:
    """Dollars per hour of what is billed by the hour; 0 for all else; None where not known.

    A public address counts with the instance or NAT gateway that has it.
    """
    if resource.kind == "NAT gateway":
        return NAT_PRICE_USD_H + PUBLIC_IPV4_PRICE_USD_H
    if resource.kind != "instance":
        return 0.0
    price = price_usd_h(str(resource.told.get("InstanceType", "")))
    if price is not None and resource.told.get("PublicIpAddress"):
        price += PUBLIC_IPV4_PRICE_USD_H
    return price


def spent_usd(resources: Iterable[Resource], now: datetime) -> float | None:
    """Dollars for each one's time from its start to its end, or until now.

    None where a price is not known.
    """
    total = 0.0
    for resource in resources:
        price = price_of(resource)
        if price is None:
            return None
        if price and resource.since is not None:
            total += price * max(0.0, (_end(resource, now) - resource.since).total_seconds()) / 3600
    return total


def _end(resource: Resource, now: datetime) -> datetime:
    """Now, or when an instance was told to end: EC2 writes that into its reason."""
    if resource.state not in ("terminated", "shutting-down"):
        return now
    told = _ENDED.search(resource.told.get("StateTransitionReason", ""))
    return datetime.fromisoformat(f"{told[1]}+00:00") if told else now
