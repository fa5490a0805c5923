"""The cost of a cluster: per hour by its plan, and so far by the ages of its resources.

The lease ends a cluster before it has cost more: `plan`, `up` and `extend` refuse a later end.
"""

import re
from collections.abc import Iterable
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from config.catalogue.instance_types import (
    BASTION_PRICE_USD_H,
    EFS_PRICE_USD_GB_MONTH,
    GP3_PRICE_USD_GB_MONTH,
    HOURS_A_MONTH,
    LUSTRE_PRICES_USD_GB_MONTH,
    NAT_PRICE_USD_H,
    PUBLIC_IPV4_PRICE_USD_H,
    price_usd_h,
)
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.command_text import command_text
from config.errors import InputError
from config.quantities import money

if TYPE_CHECKING:
    from provision.aws.resources import Resource  # imports boto3, which plans do without


_ENDED = re.compile(r"\((\d{4}-\d\d-\d\d \d\d:\d\d:\d\d)")


def hourly_usd(resolved: Resolved) -> float | None:
    """Return the dollars per hour of the whole cluster, None if not known.

    Nodes count at their on-demand price; spot instances cost less.
    """
    node = resolved.instance_type.price_usd_h
    total = 0.0 if node is None else resolved.cluster.nodes * node
    for _, price in access_prices(resolved):
        if price is None or node is None:
            return None
        total += price
    return total


def access_prices(resolved: Resolved) -> tuple[tuple[str, float | None], ...]:
    """Return the parts of a cluster's access, each with its name and dollars per hour.

    The parts are the bastion, the NAT gateway and the public addresses, as far as it has them.
    """
    has_nat = not resolved.cluster.network.nodes_are_public and resolved.existing_network is None
    bastion, nat = resolved.bastion_price_usd_h, resolved.nat_price_usd_h
    return _access_prices(resolved.cluster, bastion, nat if has_nat else None)


def catalogue_access_usd(cluster: Cluster) -> float:
    """Return the dollars per hour for access to a cluster in a new VPC, by gpuctl's catalogue."""
    nat = None if cluster.network.nodes_are_public else NAT_PRICE_USD_H
    return sum(price or 0.0 for _, price in _access_prices(cluster, BASTION_PRICE_USD_H, nat))


def _access_prices(
    cluster: Cluster, bastion: float | None, nat: float | None
) -> tuple[tuple[str, float | None], ...]:
    """Return the parts and prices; `nat` is None where the cluster has no NAT gateway."""
    network = cluster.network
    public_nodes = cluster.nodes if network.nodes_are_public else 0
    count = network.has_bastion + public_nodes + (nat is not None)
    addresses = f"{count} public address{'es' if count > 1 else ''}"
    parts: list[tuple[str, float | None]] = []
    if network.has_bastion:
        parts.append(("bastion", bastion))
    if nat is not None:
        parts.append(("NAT gateway", nat))
    if count:
        parts.append((addresses, count * PUBLIC_IPV4_PRICE_USD_H))
    return tuple(parts)


def price_of(resource: "Resource", planned: Resolved | None = None) -> float | None:
    """Return a resource's dollars per hour; 0 if AWS does not bill it by the hour, None if unknown.

    An instance of the planned type has the price of the plan. A public address is part of the price
    of the instance or NAT gateway that has it. A capacity reservation has the price of those of its
    instances that do not run
    (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-pricing-billing.html,
    2026-11-23).
    """
    if resource.kind == "NAT gateway":
        return NAT_PRICE_USD_H + PUBLIC_IPV4_PRICE_USD_H
    if resource.kind == "capacity reservation":
        unused = int(resource.attributes.get("AvailableInstanceCount", 0))
        price = _type_price(resource, planned)
        return 0.0 if not unused else None if price is None else unused * price
    if resource.kind != "instance":
        return 0.0
    price = _type_price(resource, planned)
    if price is not None and resource.attributes.get("PublicIpAddress"):
        price += PUBLIC_IPV4_PRICE_USD_H
    return price


def leftover_price(resource: "Resource") -> float | None:
    """Return a resource's dollars per hour if nothing else is left that its price is part of.

    These are the prices of `price_of`, and those of volumes, of addresses that nothing uses, and of
    storage: the data in EFS, the size of FSx. Prices of storage are those of us-east-1.
    """
    attributes = resource.attributes
    if resource.kind == "volume":
        return float(attributes.get("Size", 0)) * GP3_PRICE_USD_GB_MONTH / HOURS_A_MONTH
    if resource.kind == "elastic IP" and not attributes.get("AssociationId"):
        return PUBLIC_IPV4_PRICE_USD_H
    if resource.kind == "EFS file system":
        used = float(attributes.get("SizeInBytes", {}).get("Value", 0))
        return used / 1e9 * EFS_PRICE_USD_GB_MONTH / HOURS_A_MONTH
    if resource.kind == "FSx file system":
        return _lustre_price(attributes)
    return price_of(resource)


def _lustre_price(attributes: Any) -> float | None:
    """Return the dollars per hour of a file system by AWS's description; None if not known."""
    lustre = attributes.get("LustreConfiguration", {})
    is_scratch = str(lustre.get("DeploymentType", "")).startswith("SCRATCH")
    tier = None if is_scratch else lustre.get("PerUnitStorageThroughput", 0)
    price = LUSTRE_PRICES_USD_GB_MONTH.get(tier)
    if price is None or attributes.get("StorageType", "SSD") != "SSD":
        return None
    return float(attributes.get("StorageCapacity", 0)) * price / HOURS_A_MONTH


def daily_usd(resources: "Iterable[Resource]") -> float | None:
    """Return the dollars per day of what is left of a cluster; None if a price is not known."""
    prices = [leftover_price(resource) for resource in resources]
    return None if None in prices else 24 * sum(price for price in prices if price)


def _type_price(resource: "Resource", planned: Resolved | None) -> float | None:
    name = str(resource.attributes.get("InstanceType", ""))
    if planned is not None and planned.instance_type.name == name:
        return planned.instance_type.price_usd_h
    return price_usd_h(name)


def spent_usd(
    resources: "Iterable[Resource]", now: datetime, planned: Resolved | None = None
) -> float | None:
    """Return the dollars for all resources, each from its start to its end or until now.

    Prices are those of `price_of`; the result is None if one is not known.
    """
    total = 0.0
    for resource in resources:
        price = price_of(resource, planned)
        if price is None:
            return None
        if price and resource.since is not None:
            total += price * max(0.0, (_end(resource, now) - resource.since).total_seconds()) / 3600
    return total


def _end(resource: "Resource", now: datetime) -> datetime:
    """Return now, or when an instance was asked to end: EC2 puts that time into its reason."""
    if resource.state not in ("terminated", "shutting-down"):
        return now
    ended = _ENDED.search(resource.attributes.get("StateTransitionReason", ""))
    return datetime.fromisoformat(f"{ended[1]}+00:00") if ended else now


WARN_SHARE = 0.8
"""The share of `budget.max_total` from which on gpuctl warns."""


def budget_warning(cluster: Cluster, spent_usd: float | None) -> tuple[str, ...]:
    """Return a line if the cluster has cost `WARN_SHARE` of its budget or more, else none."""
    most = cluster.budget.max_total if cluster.budget else None
    if most is None or spent_usd is None or spent_usd < WARN_SHARE * most:
        return ()
    share = int(100 * spent_usd / most + 1e-6)  # 79.99999999 is 80 %
    end = command_text("gpuctl down {}", cluster.name)
    return (
        f"it has cost about {money(spent_usd)}, {share} % of budget.max_total ({money(most)});"
        f" {end} ends the cost",
    )


def check_until(
    cluster: Cluster, hourly: float | None, created: datetime, seconds: int, hint: str
) -> None:
    """Raise InputError if the cluster costs more than its budget until an end in `seconds`.

    It has cost `hourly` dollars an hour since it was created; None is an unknown price.
    """
    most = cluster.budget.max_total if cluster.budget else None
    if most is None or hourly is None:
        return
    age_s = (datetime.now(UTC) - created).total_seconds()
    total = hourly * (age_s + seconds) / 3600
    if total > most:
        raise InputError(
            f"budget.max_total: cluster {cluster.name} would cost ${total:,.2f} until its new end,"
            f" at most ${most:,.2f} is allowed",
            hint,
        )
