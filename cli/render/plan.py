"""A plan as text in Terraform's style, and as JSON."""

from collections import Counter
from itertools import groupby
from typing import TYPE_CHECKING, Any

from config.duration import format_duration
from config.folded_names import fold
from config.quantities import money, price
from operations import launch_details

if TYPE_CHECKING:
    from collections.abc import Mapping

    from cli.output import Output
    from config.cluster.resolved import Interface, Resolved
    from operations.rent import FleetPlan, Plan

_FILE_SYSTEMS = ("aws:efs/fileSystem:FileSystem", "aws:fsx/lustreFileSystem:LustreFileSystem")
_SIGNS = {"create": "+", "update": "~", "replace": "-/+", "delete": "-", "same": " "}


def show_plan(fleet: "FleetPlan", out: "Output") -> None:
    """Print the plan on stdout."""
    out.show(plan_json(fleet), plan_lines(fleet))


def plan_lines(fleet: "FleetPlan") -> list[str]:
    """Return the lines of a plan: resources, the nodes' network, counts, cost."""
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
    lines += ["", *replaced_lines(fleet), *older_lines(fleet), capacity_line(resolved)]
    lines += [*existing_lines(resolved), *network_lines(resolved)]
    lines += [*storage_lines(resolved), *software_lines(fleet), ""]
    counts = Counter(plan.counts)
    lines.append(
        f"Plan: {counts['create']} to create, {counts['update']} to change, "
        f"{counts['replace']} to replace, {counts['delete']} to delete."
    )
    lines.append(cost_line(fleet))
    if (begin := begin_line(fleet)) is not None:
        lines.append(begin)
    if (total := total_line(fleet)) is not None:
        lines.append(total)
    if resolved.cluster.capacity.type == "spot":
        notice = launch_details.spot_notice()
        lines.append(f"{notice[0].upper()}{notice[1:]}.")
    warnings = (*loss_warnings(plan), *resolved.warnings)
    return lines + [f"Warning: {warning}." for warning in warnings]


def replaced_lines(fleet: "FleetPlan") -> list[str]:
    """Return a line for each reason to replace: `node[0-1] are replaced: image changed`."""
    return [
        f"{fold(names)} {'is' if len(names) == 1 else 'are'} replaced: {reason}"
        for reason, names in _by_reason(fleet.replaced).items()
    ]


def older_lines(fleet: "FleetPlan") -> list[str]:
    """Return lines about the nodes that stay with older settings, and what that means."""
    kept = {name: older.reason for name, older in fleet.kept.items() if older.may_stay}
    stuck = {name: older.reason for name, older in fleet.kept.items() if not older.may_stay}
    lines = [
        f"{fold(names)} {'keeps' if len(names) == 1 else 'keep'} older settings: {reason}"
        for reason, names in _by_reason(kept).items()
    ]
    lines += [
        f"{fold(names)} cannot stay as {'it is' if len(names) == 1 else 'they are'}: {reason}"
        for reason, names in _by_reason(stuck).items()
    ]
    if stuck:
        what = "`gpuctl up` needs --replace all"
    elif kept:
        what = "`gpuctl up` makes a new machine of a node that --replace names (or `all`)"
    else:
        return []
    return [*lines, f"{what}: what is on the disks is then lost."]


def _by_reason(reasons: "Mapping[str, str]") -> dict[str, list[str]]:
    names: dict[str, list[str]] = {}
    for name, reason in reasons.items():
        names.setdefault(reason, []).append(name)
    return names


def capacity_line(resolved: "Resolved") -> str:
    """Return the kind of capacity, its zones and the spare attempts; a single zone is certain."""
    attempts = resolved.cluster.capacity.spare_attempts
    if not attempts:
        return _source_line(resolved)
    what = "machine that fails" if attempts == 1 else "machines that fail"
    return f"{_source_line(resolved)}; `up` replaces at most {attempts} {what}"


def _source_line(resolved: "Resolved") -> str:
    kind, reservation = resolved.cluster.capacity.type, resolved.reservation
    if reservation is not None:
        until = f", until {reservation.ends:%Y-%m-%d %H:%M %Z}" if reservation.ends else ""
        return f"Capacity: {kind} {reservation.id} in {resolved.zone}{until}"
    if len(resolved.zones) < 2:
        return f"Capacity: {kind}, in {resolved.zone}"
    return f"Capacity: {kind}, all or none, in the first with room of {', '.join(resolved.zones)}"


def existing_lines(resolved: "Resolved") -> list[str]:
    """Return the subnets of an existing network; nothing where gpuctl creates the network."""
    network = resolved.existing_network
    if network is None:
        return []
    nodes = " or ".join(f"{network.subnets[zone]} ({zone})" for zone in resolved.zones)
    bastion = f", the bastion in {network.bastion_subnet}" if network.bastion_subnet else ""
    return [f"Network: {network.vpc}, which exists; the nodes in {nodes}{bastion}"]


def network_lines(resolved: "Resolved") -> list[str]:
    """Return the interfaces of one node; equal consecutive cards are folded."""
    efa = sum(i.type == "efa-only" for i in resolved.interfaces)
    cards = len({i.card for i in resolved.interfaces})
    names = resolved.node_names
    who = names[0] if len(names) == 1 else f"{names[0]} … {names[-1]}, each"
    lines = [f"Network of {who}: {efa} EFA interfaces, {cards} network cards"]
    for (device, kind), run in groupby(resolved.interfaces, key=lambda i: (i.device, i.type)):
        lines.append(f"  {_cards(list(run)):<11} device {device}  {kind}")
    return lines


def software_lines(fleet: "FleetPlan") -> list[str]:
    """Return the versions of the software on each node, where they are known."""
    rows, image = fleet.software, fleet.resolved.cluster.image
    head = [f"Software of each node, image {image}:"] if rows else []
    return [*head, *(f"  {name:<16} {text}" for name, text in rows)]


def storage_lines(resolved: "Resolved") -> list[str]:
    """Return a line each for the shared file system, buckets and local disks, if there are any."""
    storage, disks = resolved.cluster.storage, resolved.instance_type.local_disks
    lines = []
    shared, existing = storage.shared, resolved.existing_storage
    if shared is not None and existing is not None:
        groups = existing.groups.get(resolved.zone, ())
        joined = f"; the nodes join {', '.join(groups)}" if groups else ""
        lines.append(
            f"Storage: {shared.type} {existing.id} at {shared.path} of every node, which exists:"
            f" gpuctl never changes or removes it{joined}"
        )
    elif shared is not None:
        lines.append(
            f"Storage: {shared.type} at {shared.path} of every node; `gpuctl down` removes it,"
            " data and all; not in the cost"
        )
    if storage.buckets:
        lines.append(
            f"Storage: {'S3 buckets' if storage.buckets[1:] else 'S3 bucket'}"
            f" {', '.join(storage.buckets)}, which the nodes read as"
            f" {resolved.cluster.instance_profile}; mounted nowhere, and never changed or removed"
        )
    if disks:
        disk = "its own disk" if disks == 1 else f"its own {disks} disks, striped,"
        lines.append(f"Scratch: {disk} at {storage.scratch} of each node; lost with the instance")
    return lines


def loss_warnings(plan: "Plan") -> list[str]:
    """Return a warning for each file system that the plan removes with its data."""
    return [
        f"what is in the shared file system is lost: it is {change.op}d"
        for change in plan.changes
        if change.type in _FILE_SYSTEMS and change.op in ("replace", "delete")
    ]


def _cards(run: "list[Interface]") -> str:
    first, last = run[0].card, run[-1].card
    return f"card {first}" if first == last else f"cards {first}-{last}"


_TERMS = {
    "on-demand": "on-demand",
    "spot": "on-demand, the most that spot costs",
    "reservation": "on-demand, billed for a reservation whether it is used or not",
    "capacity-block": "on-demand to compare with, for a block is paid when it is bought",
}
"""The meaning of a node's price for each kind of capacity: the default maximum of spot is the
on-demand price, blocks are charged up front (EC2 User Guide, "Spot Instances" and "Capacity Blocks
pricing and billing", 2026-11-20)."""


def cost_line(fleet: "FleetPlan") -> str:
    """Return the fleet's cost per hour with its parts and the source of the prices."""
    resolved = fleet.resolved
    instance = resolved.instance_type
    if fleet.hourly_usd is None:
        return f"Cost: unknown, {instance.name} has no price in {resolved.price_source}."
    nodes = (f"{resolved.cluster.nodes} x {instance.name}", instance.price_usd_h)
    parts = ", ".join(f"{what} {price(usd)}" for what, usd in (nodes, *fleet.access_prices))
    total = money(fleet.hourly_usd)
    terms = _TERMS[resolved.cluster.capacity.type]
    return f"Cost: {total} per hour ({parts}; {terms}, {resolved.price_source})."


def begin_line(fleet: "FleetPlan") -> str | None:
    """Return from when on new nodes cost money; None unless their capacity is claimed."""
    resolved, price_usd_h = fleet.resolved, fleet.resolved.instance_type.price_usd_h
    count = len({*fleet.plan.new_machines} & {*resolved.node_names} - {*fleet.replaced})
    if resolved.cluster.capacity.type != "on-demand" or not count or price_usd_h is None:
        return None
    begin = (
        f"The new nodes' {money(count * price_usd_h)} per hour begins with the claim of capacity"
    )
    if not fleet.plan.slow:
        return f"{begin}, which comes first: nothing else takes minutes."
    if not fleet.plan.is_new:
        return f"{begin}."
    return f"{begin}; what takes minutes comes first: {', '.join(fleet.plan.slow)}."


def total_line(fleet: "FleetPlan") -> str | None:
    """Return the fleet's cost during `lifetime.max`; None without a lifetime or price."""
    lifetime = fleet.resolved.cluster.lifetime
    total = fleet.total_usd
    if lifetime is None or total is None:
        return None
    return f"For all of lifetime.max ({format_duration(lifetime.max)}): {money(total)}."


def plan_json(fleet: "FleetPlan") -> dict[str, Any]:
    """Return the plan as JSON: every change, the layout of every node, the cost."""
    resolved = fleet.resolved
    return {
        "cluster": resolved.cluster.name,
        "region": resolved.region,
        "zone": resolved.zone,
        "account": resolved.account,
        "instance_type": resolved.instance_type.name,
        "image": resolved.image.model_dump(mode="json"),
        "existing_storage": resolved.existing_storage
        and resolved.existing_storage.model_dump(mode="json"),
        "existing_network": resolved.existing_network
        and resolved.existing_network.model_dump(mode="json"),
        "nodes": {
            name: [i.model_dump(mode="json") for i in resolved.interfaces]
            for name in resolved.node_names
        },
        "changes": [
            {"op": c.op, "type": c.type, "name": c.name, "details": list(c.details)}
            for c in fleet.plan.changes
        ],
        "replaced": dict(fleet.replaced),
        "older": {name: older.reason for name, older in fleet.kept.items()},
        "counts": fleet.plan.counts,
        "hourly_usd": fleet.hourly_usd,
        "total_usd": fleet.total_usd,
        "price_source": resolved.price_source,
        "software": dict(fleet.software),
        "storage": resolved.cluster.storage.model_dump(mode="json"),
        "warnings": [*loss_warnings(fleet.plan), *resolved.warnings],
    }
