"""The nodes that are replaced or keep older settings, and why, in the words of the cluster file.

A newer gpuctl does not change the launch settings of a cluster's machines. Otherwise a new node
would differ from those that run. gpuctl therefore reuses user data and launch layout of the record
until the cluster file changes the fields they are made of.
"""

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import InstanceType, Resolved
from config.errors import InputError
from config.models import Model
from infra.program.interface_layout import interfaces
from infra.stack.changes import INSTANCE, TEMPLATE, Plan
from provision.aws.clients import aws_errors
from provision.aws.resources import find
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.machines import BASTION
from provision.setup.software.gpu_hardware import hardware

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


_NAMED = "--replace names it"

_IN_PLACE = frozenset(
    {"metadataOptions", "name", "tags", "tagSpecifications", "updateDefaultVersion"}
)
"""What differs in a launch template without a difference for nodes that run: their options and tags
are inputs of the instance, and the tags of their interfaces stay."""

_MAY_STAY = ("image", "setup", "software", "lifetime", "storage.root", "instance_profile")
"""The fields of the cluster file that a node may have an older value of: the cluster works, and its
new nodes have the newer one. With other fields all nodes must agree."""

_MUST_AGREE = frozenset(
    {
        "capacityReservationSpecification",
        "instanceMarketOptions",
        "instanceType",
        "networkInterfaces",
        "placement",
    }
)
"""The properties of a launch template in which all nodes must agree."""

_USER_DATA = (
    "setup",
    "software",
    "lifetime",
    "storage.shared",
    "storage.scratch",
    "image",
    "instance_type",
    "network.efa",
    "network.interfaces",
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
    "iamInstanceProfile": ("instance profile", ("instance_profile", "network.access")),
    "instanceMarketOptions": ("market options", ("capacity",)),
    "capacityReservationSpecification": ("capacity reservation", ("capacity",)),
    "placement": ("placement", ("placement", "capacity")),
    "keyName": ("ssh key", ()),
    "userDataBase64": ("user data", ("lifetime",)),
    "subnetId": ("subnet", ("network", "capacity.zones")),
}
"""The properties of a launch template and of the bastion: each with its name in messages, and the
fields of the cluster file that determine it."""


@dataclass(frozen=True)
class OlderSettings:
    """Why the settings of a node differ from those that a new one gets, and whether it may stay."""

    reason: str
    may_stay: bool


def older_settings(
    plan: Plan,
    before: Cluster | None,
    now: Cluster,
    versions: Mapping[str, frozenset[str]],
    *,
    refresh: bool,
) -> dict[str, OlderSettings]:
    """Return the nodes whose launch settings are not those of the newest launch template.

    `before` is the cluster file of the last `up`, or None if it is not known. `versions` is what
    `differing_versions` returned.
    """
    fields = tuple(_changed(before, now)) if before else ()
    template = next((change for change in plan.changes if change.type == TEMPLATE), None)
    planned = frozenset(template.properties if template and template.op == "update" else ())
    older = {}
    for change in plan.changes:
        version = plan.launched_with.get(change.name)
        if change.type != INSTANCE or change.op == "delete" or version is None:
            continue
        behind = versions.get(version, frozenset())
        # The plan takes back what somebody else changed in the newest version.
        restored = {name for name in behind & planned if not _causes(name, fields)}
        differing = sorted((behind | planned) - restored - _IN_PLACE)
        if differing:
            causes = {cause for name in differing for cause in _causes(name, fields)}
            may_stay = not _MUST_AGREE & set(differing) and all(
                any(_is_in(cause, part) for part in _MAY_STAY) for cause in causes
            )
            reason = _reason(differing, fields, refresh)
            older[change.name] = OlderSettings(reason, may_stay)
    return older


def differing_versions(ec2: "EC2Client", plan: Plan) -> dict[str, frozenset[str]]:
    """Return in which properties older versions of the launch template differ from the newest.

    The versions are those that nodes of the plan were launched with. Raises CloudError if AWS does
    not answer.
    """
    older = sorted(set(plan.launched_with.values()) - {plan.newest})
    if not older or not plan.template:
        return {}
    with aws_errors():
        answer = ec2.describe_launch_template_versions(
            LaunchTemplateId=plan.template, Versions=[*older, plan.newest]
        )
    data: dict[str, Any] = {
        str(version["VersionNumber"]): version["LaunchTemplateData"]
        for version in answer["LaunchTemplateVersions"]
    }
    newest = data[plan.newest]
    return {
        version: frozenset(
            name[0].lower() + name[1:]
            for name in {*data.get(version, {}), *newest}
            if data.get(version, {}).get(name) != newest.get(name)
        )
        for version in older
    }


def replacement_reasons(
    plan: Plan,
    before: Cluster | None,
    now: Cluster,
    older: Mapping[str, OlderSettings],
    *,
    refresh: bool,
) -> dict[str, str]:
    """Return the reason of each replacement in the plan, by the instance's name.

    A node is replaced if somebody has named it; `older` is what `older_settings` returned.
    """
    fields = tuple(_changed(before, now)) if before else ()
    reasons = {}
    for change in plan.changes:
        if change.op != "replace" or change.type != INSTANCE:
            continue
        if change.name == BASTION:
            reasons[change.name] = _reason(change.properties, fields, refresh)
        else:
            settings = older.get(change.name)
            reasons[change.name] = f"{_NAMED}; {settings.reason}" if settings else _NAMED
    return reasons


def _reason(properties: Iterable[str], fields: tuple[str, ...], refresh: bool) -> str:
    named: dict[str, None] = {}
    unnamed: dict[str, None] = {}
    for name in properties:
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
        value, new_value = getattr(before, name), getattr(now, name)
        if isinstance(value, Model) and isinstance(new_value, Model):
            yield from _changed(value, new_value, f"{above}{name}.")
        elif value != new_value:
            yield f"{above}{name}"


_NODES = ("interfaces", "user_data")
_BASTION = "bastion_user_data"


def sent_user_data(ec2: "EC2Client", before: Resolved | None) -> str:
    """Return the nodes' user data as EC2 has them, in base64, if the record lacks them.

    It does so after the first `up`. The result is empty if the record has them, or if there is no
    launch template yet. Raises CloudError if AWS does not answer.
    """
    if before is None or before.sent:
        return ""
    templates = find(ec2, before.cluster.name, ["launch template"])
    ours = [template.id for template in templates if template.cluster_id == before.id]
    if not ours:
        return ""
    with aws_errors():
        data: Any = ec2.describe_launch_template_versions(
            LaunchTemplateId=ours[0], Versions=["$Default"]
        )["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    return str(data.get("UserData", ""))


def machine_fields(
    cluster: Cluster, instance: InstanceType, key: str, nodes_key: str
) -> dict[str, Any]:
    """Return the launch settings that this gpuctl makes of a cluster file: fields of `Resolved`.

    `nodes_key` is empty for a cluster whose nodes do not have it in their user data.
    """
    keys = [each for each in (key, nodes_key) if each]
    layout = interfaces(instance, cluster.network.efa, cluster.network.interfaces)
    return {
        "interfaces": layout,
        "user_data": node_user_data(cluster, hardware(instance, layout), *keys),
        _BASTION: bastion_user_data(cluster, key),
    }


def keep_launch_fields(
    resolved: Resolved, before: Resolved, sent: str, *, refresh: bool
) -> Resolved:
    """Return `wanted` with the launch settings of the existing machines, unless `refresh`.

    A setting is kept if this gpuctl makes the same one of the old and of the new cluster file. The
    nodes' settings are all kept or all renewed, because the user data check the launch layout.
    `sent` is what `sent_user_data` returned.
    """
    # `sent` is used only if the user data are the same text, so it may be kept with `refresh` too.
    resolved = resolved.model_copy(update={"sent": before.sent or sent})
    if refresh:
        return resolved
    kept: dict[str, Any] = {}
    try:
        keys = (before.public_key, before.nodes_public_key)
        was = machine_fields(before.cluster, resolved.instance_type, *keys)
    except InputError:  # this gpuctl refuses the old file
        return resolved
    is_same_kind = all(
        getattr(before.cluster, name) == getattr(resolved.cluster, name)
        for name in ("instance_type", "image")
    )
    if is_same_kind and all(was[name] == getattr(resolved, name) for name in _NODES):
        kept = {name: getattr(before, name) for name in _NODES}
    if was[_BASTION] == resolved.bastion_user_data:
        kept[_BASTION] = before.bastion_user_data
    return resolved.model_copy(update=kept)
