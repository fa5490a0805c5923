"""The requests of the real provider whose answers the lab does not use.

Only a policy can refuse them, so they are sent while the lab enforces one: a permission that is
missing on AWS is missing in the lab too. What each type sends:
`provision.permissions.actions`.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

from lab.provider.compute import Instance, PlacementGroup
from lab.provider.file_system_types import FileSystem
from lab.provider.iam_types import InstanceProfile, Role
from lab.provider.resource import Resource
from lab.provider.routes import RouteTable, RouteTableAssociation
from lab.provider.security import SecurityGroup
from lab.provider.values import Properties
from lab.provider.vpc_types import Eip, Subnet, Vpc


def send_of_read(kind: Resource, resource_id: str, properties: Properties) -> None:
    """Send what the real provider asks in addition when it reads the resource."""
    if send := _READS.get(type(kind)):
        send(kind.aws, resource_id, properties)


def send_of_delete(kind: Resource, resource_id: str) -> None:
    """Send what the real provider asks before it deletes the resource."""
    if send := _DELETES.get(type(kind)):
        send(kind.aws, resource_id)


def send_after_delete(kind: Resource, resource_id: str, state: Properties) -> None:
    """Send what the real provider asks until the deleted resource is gone."""
    if isinstance(kind, _WAITED_FOR):
        kind.read(resource_id, state)


def _of_vpc(ec2: Any, vpc: str, properties: Properties) -> None:
    del properties
    filters = _where("vpc-id", [vpc])
    ec2.describe_network_acls(Filters=filters)
    ec2.describe_route_tables(Filters=filters)
    ec2.describe_security_groups(Filters=filters)


def _of_address(ec2: Any, address: str, properties: Properties) -> None:
    del properties
    ec2.describe_addresses_attribute(AllocationIds=[address], Attribute="domain-name")


def _of_instance(ec2: Any, instance: str, properties: Properties) -> None:
    ec2.describe_instance_attribute(InstanceId=instance, Attribute="disableApiTermination")
    ec2.describe_volumes(Filters=_where("attachment.instance-id", [instance]))
    ec2.describe_tags(Filters=_where("resource-id", [instance]))
    kind = properties["instanceType"]
    ec2.describe_instance_types(InstanceTypes=[kind])
    if kind.startswith("t"):
        ec2.describe_instance_credit_specifications(InstanceIds=[instance])
    if request := properties.get("spotInstanceRequestId"):
        ec2.describe_spot_instance_requests(SpotInstanceRequestIds=[request])
    if template := properties.get("launchTemplate"):
        ec2.describe_launch_templates(LaunchTemplateIds=[template["id"]])
        ec2.describe_launch_template_versions(LaunchTemplateId=template["id"])


def _of_role(iam: Any, role: str, properties: Properties) -> None:
    del properties
    for name in iam.list_role_policies(RoleName=role)["PolicyNames"]:
        iam.get_role_policy(RoleName=role, PolicyName=name)
    iam.list_attached_role_policies(RoleName=role)


def _of_profile(iam: Any, profile: str, properties: Properties) -> None:
    del profile
    if role := properties.get("role"):
        iam.get_role(RoleName=role)


def _of_file_system(efs: Any, file_system: str, properties: Properties) -> None:
    del properties
    efs.describe_lifecycle_configuration(FileSystemId=file_system)


def _where(name: str, values: Sequence[str]) -> list[dict[str, Any]]:
    return [{"Name": name, "Values": list(values)}]


_READS: Mapping[type[Resource], Callable[[Any, str, Properties], None]] = {
    Vpc: _of_vpc,
    Eip: _of_address,
    Instance: _of_instance,
    Role: _of_role,
    InstanceProfile: _of_profile,
    FileSystem: _of_file_system,
}

_DELETES: Mapping[type[Resource], Callable[[Any, str], object]] = {
    Subnet: lambda ec2, subnet: ec2.describe_network_interfaces(
        Filters=_where("subnet-id", [subnet])
    ),
    SecurityGroup: lambda ec2, group: ec2.describe_network_interfaces(
        Filters=_where("group-id", [group])
    ),
    Role: lambda iam, role: iam.list_instance_profiles_for_role(RoleName=role),
}

_WAITED_FOR = (PlacementGroup, RouteTable, RouteTableAssociation, SecurityGroup, Vpc)
