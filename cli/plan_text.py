"""A plan in Terraform's manner, as text and as JSON."""

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from cli.terminal import money, price

if TYPE_CHECKING:
    from config.resolved import Interface, Resolved
    from provision.up import FleetPlan

_SIGNS = {"create": "+", "update": "~", "replace": "-/+", "delete": "-", "same": " "}


def plan_lines(fleet: "FleetPlan") -> list[str]:
    """The lines of a plan: resources, the nodes' network, counts, cost."""
    resolved, plan = fleet.resolved, fleet.plan
    lines = [
        f"Cluster {resolved.cluster.name}: {resolved.cluster.nodes} x "
        f"{resolved.instance_type.name} in {resolved.zone}, account {resolved.account}, "
        f"image {resolved.image.id} ({resolved.image.name})",
        "",
    ]
    for change in plan.changes:
        if change.op == "same":
            continue
        lines.append(f"  {_SIGNS[change.op]:>3} {change.type:<46} {change.name}")
        lines += [f"        {detail}" for detail in change.details]
    if plan.is_empty:
        lines.append("  No changes: the cluster is what the file says.")
    lines += ["", *network_lines(resolved), ""]
    counts = Counter(plan.counts)
    lines.append(
        f"Plan: {counts['create']} to create, {counts['update']} to change, "
        f"{counts['replace']} to replace, {counts['delete']} to delete."
    )
    lines.append(cost_line(fleet))
    return lines


def network_lines(resolved: "Resolved") -> list[str]:
    """The launch layout of one node; equal consecutive cards are folded."""
    efa = sum(i.type == "efa-only" for i in resolved.interfaces)
    cards = len({i.card for i in resolved.interfaces})
    names = resolved.node_names
    who = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}, each"
    lines = [f"Network of {who}: {efa} EFA interfaces, {cards} network cards"]
    for (device, kind), run in groupby(resolved.interfaces, key=lambda i: (i.device, i.type)):
        lines.append(f"  {_cards(list(run)):<11} device {device}  {kind}")
    return lines


def _cards(run: "list[Interface]") -> str:
    first, last = run[0].card, run[-1].card
    return f"card {first}" if first == last else f"cards {first}-{last}"


def cost_line(fleet: "FleetPlan") -> str:
    """What the whole fleet costs per hour, and of what that is made."""
    from config.catalogue import PRICES_DATE, PUBLIC_IPV4_PRICE_USD_H

    resolved = fleet.resolved
    instance = resolved.instance_type
    if fleet.hourly_usd is None:
        return f"Cost: unknown, no price of {instance.name} is in the list of {PRICES_DATE}."
    parts = (
        f"{resolved.cluster.nodes} x {instance.name} {price(instance.price_usd_h)}, "
        f"bastion {price(resolved.bastion_price_usd_h)}, NAT gateway "
        f"{price(resolved.nat_price_usd_h)}, 2 public addresses "
        f"{price(2 * PUBLIC_IPV4_PRICE_USD_H)}"
    )
    total = money(fleet.hourly_usd)
    return f"Cost: {total} per hour ({parts}; on-demand list price of {PRICES_DATE}, us-east-1)."


def plan_json(fleet: "FleetPlan") -> dict[str, Any]:
    """The plan as JSON: every change, the layout of every node, the cost."""
    resolved = fleet.resolved
    return {
        "cluster": resolved.cluster.name,
        "region": resolved.region,
        "zone": resolved.zone,
        "account": resolved.account,
        "instance_type": resolved.instance_type.name,
        "image": resolved.image.model_dump(mode="json"),
        "nodes": {
            name: [i.model_dump(mode="json") for i in resolved.interfaces]
            for name in resolved.node_names
        },
        "changes": [
            {"op": c.op, "type": c.type, "name": c.name, "details": list(c.details)}
            for c in fleet.plan.changes
        ],
        "counts": fleet.plan.counts,
        "hourly_usd": fleet.hourly_usd,
    }
