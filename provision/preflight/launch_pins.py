"""The launch settings of a cluster's machines, which a newer gpuctl must not change.

Otherwise a new node would differ from those that run. gpuctl therefore reuses user data and launch
layout of the record until the cluster file changes the fields they are made of.
"""

from typing import TYPE_CHECKING, Any

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import InstanceType, Resolved
from config.errors import InputError
from infra.program.interface_layout import interfaces
from provision.aws.clients import aws_errors
from provision.aws.resources import find
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.software.gpu_hardware import hardware

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

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
