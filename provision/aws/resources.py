"""The resources of clusters in AWS, found by their tags and not by a record.

Shared file systems and roles belong to other services than EC2; `find_all` asks those too.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Literal

from config.cluster.resolved import CLUSTER_TAG, ID_TAG, OWNER_TAG
from config.errors import CloudError
from config.target import Target
from provision.aws.clients import DENIED, aws_errors, client, request_pool
from provision.aws.guardduty import ENDPOINT, GROUP, find_managed
from provision.aws.iam_roles import identities

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


Service = Literal["ec2", "efs", "fsx", "iam", "guardduty"]
"""The services whose resources a cluster has; GuardDuty's are EC2's, without gpuctl's tags."""


@dataclass(frozen=True)
class Kind:
    """A kind of resource: the request that lists it, and the states in which it no longer exists.

    `filters` is the request's parameter for filters, empty if the service lists everything.
    """

    noun: str
    operation: str
    answer: str
    id_field: str
    gone: frozenset[str] = frozenset()
    filters: str = "Filters"
    state: str = "State"
    service: Service = "ec2"

    @property
    def permissions(self) -> tuple[str, ...]:
        """The IAM actions that listing needs (`iam:ListRoles`)."""
        prefix = {"efs": "elasticfilesystem", "guardduty": "ec2"}.get(self.service, self.service)
        operations = [self.operation]
        if self.service == "iam":  # it lists without tags, so each is requested by name
            operations.append(self.operation.replace("list", "get").removesuffix("s"))
        return tuple(f"{prefix}:{operation.title().replace('_', '')}" for operation in operations)

    @property
    def unlisted(self) -> str:
        """The kind, with the permissions without which gpuctl assumes that there is none."""
        return f"{self.noun}s ({', '.join(self.permissions)})"


KINDS = {
    kind.noun: kind
    for kind in (
        Kind(
            "capacity reservation", "describe_capacity_reservations", "CapacityReservations",
            "CapacityReservationId",
            # `cancelling` ends by itself (CapacityReservation in EC2's API reference, 2026-11-22).
            frozenset({"cancelling", "cancelled", "expired", "failed", "payment-failed",
                       "unsupported"}),
            "",  # the reference of this request lists no filter by tag (2026-11-23)
        ),
        Kind(
            "instance", "describe_instances", "Reservations", "InstanceId",
            frozenset({"terminated"}),
        ),
        # AWS deletes an instance's volumes with it, unless somebody has changed that.
        Kind("volume", "describe_volumes", "Volumes", "VolumeId",
             frozenset({"deleting", "deleted"})),
        Kind("EFS file system", "describe_file_systems", "FileSystems", "FileSystemId",
             frozenset({"deleted"}), "", "LifeCycleState", "efs"),
        Kind("FSx file system", "describe_file_systems", "FileSystems", "FileSystemId",
             frozenset(), "", "Lifecycle", "fsx"),
        Kind(
            "NAT gateway", "describe_nat_gateways", "NatGateways", "NatGatewayId",
            frozenset({"deleted"}), "Filter",
        ),
        Kind("elastic IP", "describe_addresses", "Addresses", "AllocationId"),
        Kind("network interface", "describe_network_interfaces", "NetworkInterfaces",
             "NetworkInterfaceId"),
        Kind("launch template", "describe_launch_templates", "LaunchTemplates",
             "LaunchTemplateId"),
        Kind("instance profile", "list_instance_profiles", "InstanceProfiles",
             "InstanceProfileName", service="iam"),
        Kind("IAM role", "list_roles", "Roles", "RoleName", service="iam"),
        Kind("placement group", "describe_placement_groups", "PlacementGroups", "GroupName",
             frozenset({"deleted"})),
        Kind("key pair", "describe_key_pairs", "KeyPairs", "KeyName"),
        Kind(ENDPOINT, "describe_vpc_endpoints", "VpcEndpoints", "VpcEndpointId",
             frozenset({"deleted"}), service="guardduty"),
        Kind(GROUP, "describe_security_groups", "SecurityGroups", "GroupId", service="guardduty"),
        Kind("security group", "describe_security_groups", "SecurityGroups", "GroupId"),
        Kind("subnet", "describe_subnets", "Subnets", "SubnetId"),
        Kind("route table", "describe_route_tables", "RouteTables", "RouteTableId"),
        Kind("internet gateway", "describe_internet_gateways", "InternetGateways",
             "InternetGatewayId"),
        Kind("VPC", "describe_vpcs", "Vpcs", "VpcId"),
    )
}  # fmt: skip
"""The kinds in the order of their removal: a resource comes after those that depend on it."""


ALIVE = frozenset({"pending", "running"})
"""The states of an instance that runs or is about to run."""


@dataclass(frozen=True)
class Resource:
    """A resource with a cluster's tag. `attributes` is AWS's whole description of it.

    `cluster_id` and `owner` are empty if somebody has removed these tags.
    """

    kind: str
    id: str
    cluster: str
    name: str
    state: str
    attributes: Any
    cluster_id: str = ""
    owner: str = ""

    @property
    def tags(self) -> dict[str, str]:
        """All of its tags."""
        return _tags(self.attributes)

    @property
    def since(self) -> datetime | None:
        """The time of its creation, or None if AWS does not report it."""
        attributes = self.attributes
        names = ("LaunchTime", "CreateTime", "CreateDate", "CreationTime")
        since = next((attributes[name] for name in names if attributes.get(name)), None)
        return since if isinstance(since, datetime) else None


def find(ec2: "EC2Client", cluster: str | None, nouns: Sequence[str] = ()) -> list[Resource]:
    """Return the resources in EC2 with the tag of `cluster`, or of any cluster if it is None.

    They are in the order of `KINDS`, and of the kinds `nouns` if given; all kinds are requested at
    once. Resources that have ended are left out, even while AWS still lists them; see
    `find_instances`.
    """
    kinds = [KINDS[noun] for noun in nouns or KINDS if KINDS[noun].service == "ec2"]
    with request_pool(8) as pool:
        by_kind = list(pool.map(lambda kind: _find_kind(ec2, kind, cluster), kinds))
    return [resource for kind in by_kind for resource in kind if exists(resource)]


def find_all(
    target: Target,
    cluster: str | None,
    nouns: Sequence[str] = (),
    cluster_id: str | None = None,
    on_denied: Callable[[Kind], object] = lambda kind: None,
) -> list[Resource]:
    """Return what `find` returns, for every service, and only resources with `cluster_id` if given.

    The id matters because another cluster may have the same name. Without the permission to list
    file systems, roles or endpoints, gpuctl assumes that there are none, and calls `on_denied` with
    the kind.
    """
    kinds = [KINDS[noun] for noun in nouns or KINDS if KINDS[noun].service != "ec2"]
    with request_pool(4) as pool:
        others = [pool.submit(_find_other, target, kind, cluster, on_denied) for kind in kinds]
        resources = find(client(target, "ec2"), cluster, nouns)
        resources += [
            resource for future in others for resource in future.result() if exists(resource)
        ]
    order = list(KINDS)
    ours = [resource for resource in resources if cluster_id in (None, resource.cluster_id)]
    return sorted(ours, key=lambda each: order.index(each.kind))


def _find_other(
    target: Target, kind: Kind, cluster: str | None, on_denied: Callable[[Kind], object]
) -> list[Resource]:
    try:
        if kind.service == "guardduty":
            ec2 = client(target, "ec2")
            return _of_cluster(
                kind, find_managed(ec2, kind.operation, kind.answer, cluster), cluster
            )
        if kind.service == "iam":
            return _of_cluster(kind, identities(target, kind.operation), cluster)
        return _find_kind(client(target, kind.service), kind, cluster)
    except CloudError as error:
        if error.code in DENIED | {"UnrecognizedClientException"}:
            on_denied(kind)
            return []
        raise


def find_instances(
    ec2: "EC2Client", cluster: str | None, cluster_id: str | None = None
) -> list[Resource]:
    """Return all instances of `cluster` (None: of any), also those that ended within the hour.

    With `cluster_id`, return only those that have that id.
    """
    instances = _find_kind(ec2, KINDS["instance"], cluster)
    return [resource for resource in instances if cluster_id in (None, resource.cluster_id)]


def exists(resource: Resource) -> bool:
    """Return whether the resource still exists; AWS lists ended ones for a while."""
    return resource.state not in KINDS[resource.kind].gone


def _find_kind(aws: Any, kind: Kind, cluster: str | None) -> list[Resource]:
    tagged: dict[str, Any] = {"Name": "tag-key", "Values": [CLUSTER_TAG]}
    if cluster is not None:
        tagged = {"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}
    filters = {kind.filters: [tagged]} if kind.filters else {}
    with aws_errors():
        if aws.can_paginate(kind.operation):
            pages = list(aws.get_paginator(kind.operation).paginate(**filters))
        else:
            pages = [getattr(aws, kind.operation)(**filters)]
    items = [item for page in pages for item in page[kind.answer]]
    if kind.noun == "instance":
        items = [item for reservation in items for item in reservation["Instances"]]
    return _of_cluster(kind, items, cluster)


def _of_cluster(kind: Kind, items: Sequence[Any], cluster: str | None) -> list[Resource]:
    resources = [resource for item in items if (resource := _resource(kind, item))]
    return [resource for resource in resources if cluster is None or resource.cluster == cluster]


def _resource(kind: Kind, item: Any) -> Resource | None:
    tags = _tags(item)
    if CLUSTER_TAG not in tags:
        return None
    state = item.get(kind.state, "")
    return Resource(
        kind=kind.noun,
        id=str(item[kind.id_field]),
        cluster=tags[CLUSTER_TAG],
        name=tags.get("Name", ""),
        state=str(state["Name"] if isinstance(state, dict) else state),
        attributes=item,
        cluster_id=tags.get(ID_TAG, ""),
        owner=tags.get(OWNER_TAG, ""),
    )


def _tags(item: Any) -> dict[str, str]:
    # EC2 lists the tags of network interfaces as TagSet, those of all other resources as Tags.
    return {tag["Key"]: tag["Value"] for tag in item.get("Tags") or item.get("TagSet") or ()}
