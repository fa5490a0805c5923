"""The reasons why instances are replaced, in the words of the cluster file."""

from collections.abc import Iterator, Mapping

from config.cluster.cluster_file import Cluster
from config.models import Model
from infra.stack.changes import Change, Plan

_INSTANCE = "aws:ec2/instance:Instance"
_TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
_LAUNCHED_BY = "launchTemplate"
_BASTION = "bastion"

_USER_DATA = (
    *("setup", "software", "lifetime", "storage.shared", "storage.scratch"),
    *("image", "instance_type", "network.efa", "network.interfaces"),
)
_PROPERTIES: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "imageId": ("image", ("image",)),
    "instanceType": ("instance type", ("instance_type",)),
    "userData": ("user data", _USER_DATA),
    "networkInterfaces": (
        "network interfaces",
        ("network", "capacity.zones", "storage.shared", "instance_type"),
    ),
    "blockDeviceMappings": ("root volume", ("storage.root", "image")),
    "metadataOptions": ("metadata options", ()),
    "instanceMarketOptions": ("market options", ("capacity",)),
    "capacityReservationSpecification": ("capacity reservation", ("capacity",)),
    "placement": ("placement", ("placement", "capacity")),
    "tagSpecifications": ("tags", ("tags",)),
    "keyName": ("ssh key", ()),
    "userDataBase64": ("user data", ("lifetime",)),
    "subnetId": ("subnet", ("network", "capacity.zones")),
}
"""The properties of a launch template and of the bastion: each with its name in messages, and the
fields of the cluster file that determine it."""


def replacement_reasons(
    plan: Plan, before: Cluster | None, now: Cluster, *, refresh: bool
) -> dict[str, str]:
    """Return the reason of each replacement in the plan, by the instance's name.

    `before` is the cluster file of the last `up`, or None if it is not known.
    """
    fields = tuple(_changed(before, now)) if before else ()
    template = next((change for change in plan.changes if change.type == _TEMPLATE), None)
    return {
        change.name: _reason(_properties(change, template), fields, refresh)
        for change in plan.changes
        if change.op == "replace" and change.type == _INSTANCE
    }


def is_unrequested(plan: Plan, before: Cluster, now: Cluster) -> bool:
    """Return whether the plan replaces all nodes, and no field that changed is a reason.

    `before` is the cluster file of the last `up`, which succeeded: all nodes were made of it.
    """
    fields = tuple(_changed(before, now))
    template = next((change for change in plan.changes if change.type == _TEMPLATE), None)
    stays = [c for c in plan.changes if c.type == _INSTANCE and c.name != _BASTION]
    stays = [change for change in stays if change.op not in ("create", "delete")]
    reasons = [_properties(change, template) for change in stays]
    return bool(stays) and all(
        change.op == "replace" and not any(_causes(name, fields) for name in properties)
        for change, properties in zip(stays, reasons, strict=True)
    )


def _properties(change: Change, template: Change | None) -> tuple[str, ...]:
    """Return the properties that differ; those of a node's launch template count as the node's."""
    if template is None or template.op == "same" or _LAUNCHED_BY not in change.properties:
        return change.properties
    return tuple(name for name in change.properties if name != _LAUNCHED_BY) + template.properties


def _reason(properties: tuple[str, ...], fields: tuple[str, ...], refresh: bool) -> str:
    named: dict[str, None] = {}
    unnamed: dict[str, None] = {}
    for name in properties:
        if name == _LAUNCHED_BY:
            return "it was launched by an earlier launch template"
        words, _ = _PROPERTIES.get(name, (name, ()))
        causes = _causes(name, fields)
        named.update(dict.fromkeys(causes))
        if not causes:
            unnamed[words] = None
    parts = []
    if named:
        parts.append(f"{', '.join(named)} changed")
    if unnamed:
        parts.append(f"{'--refresh: ' if refresh else ''}{', '.join(unnamed)} changed")
    return "; ".join(parts)


def _causes(name: str, fields: tuple[str, ...]) -> list[str]:
    """Return the changed fields of the file that determine the property."""
    _, made_of = _PROPERTIES.get(name, (name, ()))
    return [field for field in fields if any(_is_in(field, each) for each in made_of)]


def _is_in(field: str, part: str) -> bool:
    return field == part or field.startswith(f"{part}.")


def _changed(before: Model, now: Model, above: str = "") -> Iterator[str]:
    """Yield the fields in which two files differ: `image`, `storage.root.gib`."""
    for name in type(now).model_fields:
        one, other = getattr(before, name), getattr(now, name)
        if isinstance(one, Model) and isinstance(other, Model):
            yield from _changed(one, other, f"{above}{name}.")
        elif one != other:
            yield f"{above}{name}"
