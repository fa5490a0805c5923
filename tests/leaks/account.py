"""What exists in the account, asked of the API and not of gpuctl, so that it can contradict it."""

from collections.abc import Iterator, Mapping
from functools import lru_cache
from typing import Any

import boto3
import jmespath

LISTS = (
    ("ec2", "describe_instances", "Reservations[].Instances[]", "InstanceId"),
    ("ec2", "describe_capacity_reservations", "CapacityReservations[]", "CapacityReservationId"),
    ("ec2", "describe_spot_instance_requests", "SpotInstanceRequests[]", "SpotInstanceRequestId"),
    ("ec2", "describe_volumes", "Volumes[]", "VolumeId"),
    ("ec2", "describe_snapshots", "Snapshots[]", "SnapshotId"),
    ("ec2", "describe_network_interfaces", "NetworkInterfaces[]", "NetworkInterfaceId"),
    ("ec2", "describe_addresses", "Addresses[]", "AllocationId"),
    ("ec2", "describe_nat_gateways", "NatGateways[]", "NatGatewayId"),
    ("ec2", "describe_launch_templates", "LaunchTemplates[]", "LaunchTemplateId"),
    ("ec2", "describe_placement_groups", "PlacementGroups[]", "GroupName"),
    ("ec2", "describe_key_pairs", "KeyPairs[]", "KeyName"),
    ("ec2", "describe_security_groups", "SecurityGroups[]", "GroupId"),
    ("ec2", "describe_subnets", "Subnets[]", "SubnetId"),
    ("ec2", "describe_route_tables", "RouteTables[]", "RouteTableId"),
    ("ec2", "describe_network_acls", "NetworkAcls[]", "NetworkAclId"),
    ("ec2", "describe_internet_gateways", "InternetGateways[]", "InternetGatewayId"),
    ("ec2", "describe_vpc_endpoints", "VpcEndpoints[]", "VpcEndpointId"),
    ("ec2", "describe_vpcs", "Vpcs[]", "VpcId"),
    ("ec2", "describe_dhcp_options", "DhcpOptions[]", "DhcpOptionsId"),
    ("efs", "describe_file_systems", "FileSystems[]", "FileSystemId"),
    ("fsx", "describe_file_systems", "FileSystems[]", "FileSystemId"),
    ("iam", "list_roles", "Roles[]", "RoleName"),
    ("iam", "list_instance_profiles", "InstanceProfiles[]", "InstanceProfileName"),
    ("iam", "list_policies", "Policies[]", "PolicyName"),
)
"""Service, request, place of the answer's items (JMESPath), and their identity."""

_GONE = {"terminated", "deleted", "cancelled", "expired", "failed", "closed"}
_SCOPE: dict[str, Any] = {
    "list_policies": {"Scope": "Local"},
    "describe_snapshots": {"OwnerIds": ["self"]},
}


def inventory(region: str, endpoint: str, environment: Mapping[str, str]) -> set[str]:
    """Return `describe_vpcs vpc-0123` for all that exists in the region, whoever owns it."""
    return {
        f"{request} {one}"
        for service, request, items, identity in LISTS
        for one in _existing(_client(service, region, endpoint, environment), request, items,
                             identity)
    }  # fmt: skip


def _existing(aws: Any, request: str, items: str, identity: str) -> Iterator[str]:
    for one in jmespath.search(items, getattr(aws, request)(**_SCOPE.get(request, {}))):
        state = one.get("State", one.get("LifeCycleState", one.get("Lifecycle", "")))
        if (state["Name"] if isinstance(state, dict) else state) not in _GONE:
            yield one[identity]


def _client(service: str, region: str, endpoint: str, environment: Mapping[str, str]) -> Any:
    key = environment["AWS_ACCESS_KEY_ID"], environment["AWS_SECRET_ACCESS_KEY"]
    return _made_client(service, region, endpoint, *key)


@lru_cache(maxsize=8)
def _made_client(service: str, region: str, endpoint: str, key_id: str, secret: str) -> Any:
    return boto3.client(
        service,  # type: ignore[call-overload]
        region_name=region,
        endpoint_url=endpoint,
        aws_access_key_id=key_id,
        aws_secret_access_key=secret,
    )
