"""The IAM actions that each command needs.

gpuctl's own calls are listed here, those of Pulumi's provider in
`provision.permissions.provider_calls`. Tests compare both with the code and with the requests that
the lab receives
(tests/provision/test_permissions.py, tests/plans/test_permissions.py).
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass

from config.catalogue.ec2_actions import EC2_ACTIONS
from config.cluster.cluster_file import Cluster
from provision.permissions.provider_calls import ALL_CALLS, Feature

COMMANDS = (
    "capacity",
    "doctor",
    "down",
    "drift",
    "extend",
    "gc",
    "plan",
    "run",
    "ssh",
    "status",
    "up",
)
"""The commands that call AWS. `run` means all commands that can destroy a cluster at the end
of a run, `ssh` for all that reach nodes through Session Manager."""

FEATURES: tuple[Feature, ...] = ("network", "efs", "fsx-lustre", "ssm", "role", "spot")
"""What clusters of any file may have, where gpuctl makes the nodes' role."""


@dataclass(frozen=True)
class Part:
    """Calls of gpuctl that belong together.

    With `feature`, only clusters that have it need them. Without `optional` ones, commands go on
    with a warning, or with fewer details; `optional` says which.
    """

    commands: frozenset[str]
    actions: tuple[str, ...]
    feature: Feature | None = None
    optional: str = ""


def _part(commands: str, actions: str, feature: Feature | None = None, optional: str = "") -> Part:
    """Return a part; an action without a service is EC2's."""
    names = tuple(name if ":" in name else f"ec2:{name}" for name in actions.split())
    return Part(frozenset(commands.split()), names, feature, optional)


PARTS = (
    # What preflight asks (provision/preflight).
    _part(
        "plan up",
        "ssm:GetParameter DescribeImages DescribeInstanceTypes DescribeInstanceTypeOfferings"
        " DescribeInstances DescribeAddresses DescribeVpcs DescribeCapacityReservations"
        " DescribeSubnets DescribeRouteTables DescribeVpcAttribute",
    ),
    _part(
        "plan up",
        "DescribeLaunchTemplates DescribeLaunchTemplateVersions",
        optional="how the nodes were launched is not known",
    ),
    _part(
        "plan up capacity",
        "servicequotas:GetServiceQuota servicequotas:ListServiceQuotas",
        optional="quotas are not checked",
    ),
    _part("plan up capacity", "pricing:GetProducts", optional="prices are the catalogue's"),
    _part(
        "plan up down run doctor",
        "iam:SimulatePrincipalPolicy",
        optional="missing permissions are found when a request fails",
    ),
    # The resources of clusters (provision/aws/resources.py).
    _part(
        "plan up down run status drift gc",
        "DescribeCapacityReservations DescribeInstances DescribeNatGateways DescribeAddresses"
        " DescribeNetworkInterfaces DescribeLaunchTemplates DescribePlacementGroups"
        " DescribeKeyPairs DescribeSecurityGroups DescribeSubnets DescribeRouteTables"
        " DescribeInternetGateways DescribeVpcs DescribeVolumes",
    ),
    _part(
        "plan up down run status drift gc",
        "DescribeVpcEndpoints elasticfilesystem:DescribeFileSystems fsx:DescribeFileSystems"
        " iam:ListRoles iam:ListInstanceProfiles",
        optional="file systems, roles and GuardDuty's endpoints are taken to be none",
    ),
    _part("plan up down run status drift gc", "iam:GetRole iam:GetInstanceProfile", "role"),
    # The nodes' permissions (provision/preflight/node_role.py).
    _part("plan up", "iam:GetPolicy", "role"),
    _part("plan up", "iam:GetInstanceProfile", "profile"),
    _part("up", "iam:PassRole", "profile"),
    _part("gc", "DescribeRegions"),
    _part("status", "DescribeSpotInstanceRequests", "spot"),
    # Capacity (provision/capacity/offers.py, provision/capacity/claim.py).
    _part(
        "capacity",
        "DescribeInstanceTypes DescribeInstanceTypeOfferings DescribeSpotPriceHistory"
        " DescribeCapacityReservations DescribeCapacityBlockOfferings",
    ),
    _part(
        "up",
        "CreateCapacityReservation DescribeCapacityReservations"
        " CancelCapacityReservation DescribePlacementGroups",
    ),
    _part("up", "iam:CreateServiceLinkedRole", "spot"),
    _part("up extend", "CreateTags"),  # when machines end (provision/aws/end_tags.py)
    # Nodes that boot (provision/setup, provision/aws/topology.py).
    _part("up", "GetConsoleOutput DescribeInstances"),
    _part("up", "DescribeInstanceTopology", optional="ranks are in the order of launch"),
    _part("up", "ssm:DescribeInstanceInformation", "ssm"),
    _part("up ssh", "ssm:StartSession", "ssm"),
    # Removal, also by an `up` that fails (provision/removal, provision/aws).
    _part(
        "up down run gc",
        "TerminateInstances CancelCapacityReservation DisassociateAddress ReleaseAddress"
        " DeleteNetworkInterface DeleteLaunchTemplate DeletePlacementGroup DeleteKeyPair"
        " RevokeSecurityGroupIngress RevokeSecurityGroupEgress DeleteSecurityGroup DeleteVolume",
    ),
    _part(
        "up down run gc",
        "DeleteNatGateway DeleteSubnet DisassociateRouteTable DeleteRouteTable"
        " DetachInternetGateway DeleteInternetGateway DeleteVpc",
        "network",
    ),
    _part(
        "up down run gc",
        "DeleteVpcEndpoints",
        "network",
        optional="a VPC in which GuardDuty has an endpoint is not removed",
    ),
    _part(
        "up down run gc",
        "elasticfilesystem:DescribeMountTargets elasticfilesystem:DeleteMountTarget"
        " elasticfilesystem:DeleteFileSystem",
        "efs",
    ),
    _part("up down run gc", "fsx:DeleteFileSystem", "fsx-lustre"),
    _part(
        "up down run gc",
        "iam:ListAttachedRolePolicies iam:DetachRolePolicy iam:ListRolePolicies"
        " iam:DeleteRolePolicy iam:DeleteRole iam:RemoveRoleFromInstanceProfile"
        " iam:DeleteInstanceProfile",
        "role",
    ),
)
"""All calls of gpuctl. sts:GetCallerIdentity is not among them: it needs no permission
(https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html, 2026-11-23)."""

_PROVIDER = {
    "plan": ("read",),
    "up": ("create", "read", "update", "delete"),
    "down": ("read", "delete"),
    "drift": ("read",),
    "run": ("read", "delete"),
}
"""What Pulumi's provider does for each command; a plan and a removal refresh the state first."""


def needed(
    commands: Iterable[str] = COMMANDS, features: Iterable[Feature] = FEATURES
) -> frozenset[str]:
    """Return the actions that the commands need for clusters with the features."""
    return frozenset(_actions(frozenset(commands), frozenset(features)))


def optional(actions: Iterable[str]) -> dict[str, str]:
    """Return the optional ones of the actions, each with what is missing without it.

    An action that some part of gpuctl requires is not optional.
    """
    required = {action for part in PARTS if not part.optional for action in part.actions}
    required |= {
        call for calls in ALL_CALLS if calls.feature is None for call in calls.create + calls.read
    }
    return {
        action: part.optional
        for part in PARTS
        if part.optional
        for action in part.actions
        if action in set(actions) - required
    }


def features_of(cluster: Cluster) -> frozenset[Feature]:
    """Return the features of a cluster file."""
    shared = cluster.storage.shared
    found: dict[Feature, bool] = {
        "network": not cluster.network.exists,
        "efs": shared is not None and shared.type == "efs",
        "fsx-lustre": shared is not None and shared.type == "fsx-lustre",
        "ssm": cluster.network.uses_session_manager,
        "role": cluster.needs_role,
        "profile": cluster.instance_profile is not None,
        "spot": cluster.capacity.type == "spot",
    }
    return frozenset(feature for feature, has in found.items() if has)


def _actions(commands: frozenset[str], features: frozenset[Feature]) -> Iterator[str]:
    for part in PARTS:
        if part.commands & commands and (part.feature is None or part.feature in features):
            yield from part.actions
    for calls in ALL_CALLS:
        if calls.feature is None or calls.feature in features:
            for command in commands & _PROVIDER.keys():
                for phase in _PROVIDER[command]:
                    yield from getattr(calls, phase)


def is_change(action: str) -> bool:
    """Return whether the action changes something in AWS."""
    service, _, name = action.partition(":")
    if service == "ec2":
        return name in EC2_ACTIONS or name in ("CreateTags", "DeleteTags")
    return not name.startswith(("Describe", "Get", "List", "Simulate"))
