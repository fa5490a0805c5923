"""The IAM actions that each command needs: gpuctl's own calls, and those of Pulumi's AWS provider.

On AWS the provider that Pulumi shares with Terraform makes most calls. Source: the resource's file
in https://github.com/hashicorp/terraform-provider-aws/tree/main/internal/service, functions Create,
Read, Update and Delete, read 2026-11-23 and 2026-11-25 as far as gpuctl's inputs lead through them:
the program moves no association to another table, and replaces an FSx of another size. From memory,
not read: NAT and internet gateway, route table association, key pair, placement group, mount
target, role policy. The lab's provider makes these calls and no others.

What an action acts on, and under which condition, is in `config.catalogue.iam_actions`. Tests
compare both with the code (tests/provision/test_permissions.py) and with the requests that the lab
receives (tests/permissions).
"""

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from config.cluster.cluster_file import Cluster

Feature = Literal[
    "network", "efs", "fsx-lustre", "their-efs", "their-fsx", "ssm", "role", "profile", "spot"
]
"""What a cluster file can have that needs further actions: `network` is a VPC that gpuctl makes,
`their-efs` and `their-fsx` are file systems that exist,
`role` the nodes' role that it makes, `profile` an instance profile that an administrator made."""

Phase = Literal["create", "read", "update", "delete"]
"""The steps of Pulumi's provider with a resource."""

COMMANDS = (
    "buy",
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

FEATURES: tuple[Feature, ...] = (
    *("network", "efs", "fsx-lustre", "their-efs", "their-fsx", "ssm", "role", "spot"),
)
"""What clusters of any file may have, where gpuctl makes the nodes' role."""


_PHASES: dict[Phase, str] = {
    "create": "up",
    "read": "plan up down drift run",
    "update": "up",
    "delete": "up down run",
}
"""The commands with each phase; a plan and a removal refresh the state first."""


@dataclass(frozen=True)
class Need:
    """Actions that belong together.

    With `feature`, only clusters that have it need them. Without `optional` ones, commands go on
    with a warning, or with fewer details; `optional` says which. Pulumi's provider needs those with
    a `resource_type` (Pulumi's name of it) in that `phase`.
    """

    commands: frozenset[str]
    actions: tuple[str, ...]
    feature: Feature | None = None
    optional: str = ""
    resource_type: str = ""
    phase: Phase | None = None


def _own(commands: str, actions: str, feature: Feature | None = None, optional: str = "") -> Need:
    """Return a need of gpuctl's own calls."""
    return Need(frozenset(commands.split()), _names(actions), feature, optional)


def _provider(
    resource_type: str,
    create: str,
    read: str,
    update: str,
    delete: str,
    feature: Feature | None = None,
) -> Iterable[Need]:
    """Yield the needs of the provider for a resource type; all of EC2's have tags."""
    if resource_type.startswith("aws:ec2/"):
        create, update = f"{create} CreateTags", f"{update} CreateTags DeleteTags"
    calls = (create, read, update, delete)
    for (phase, commands), actions in zip(_PHASES.items(), calls, strict=True):
        yield Need(frozenset(commands.split()), _names(actions), feature, "", resource_type, phase)


def _names(actions: str) -> tuple[str, ...]:
    """Return the actions; one without a service is EC2's."""
    return tuple(name if ":" in name else f"ec2:{name}" for name in actions.split())


NEEDS = (
    # What preflight asks (provision/preflight).
    _own(
        "plan up",
        "ssm:GetParameter DescribeImages DescribeInstanceTypes DescribeInstanceTypeOfferings"
        " DescribeInstances DescribeAddresses DescribeVpcs DescribeCapacityReservations"
        " DescribeSubnets DescribeRouteTables DescribeVpcAttribute",
    ),
    _own(
        "plan up",
        "DescribeLaunchTemplates DescribeLaunchTemplateVersions",
        optional="how the nodes were launched is not known",
    ),
    _own(
        "plan up capacity",
        "servicequotas:GetServiceQuota servicequotas:ListServiceQuotas",
        optional="quotas are not checked",
    ),
    _own("plan up capacity", "pricing:GetProducts", optional="prices are the catalogue's"),
    _own(
        "plan up down run doctor",
        "iam:SimulatePrincipalPolicy",
        optional="missing permissions are found when a request fails",
    ),
    # The resources of clusters (provision/aws/resources.py).
    _own(
        "plan up down run status drift gc",
        "DescribeCapacityReservations DescribeInstances DescribeNatGateways DescribeAddresses"
        " DescribeNetworkInterfaces DescribeLaunchTemplates DescribePlacementGroups"
        " DescribeKeyPairs DescribeSecurityGroups DescribeSubnets DescribeRouteTables"
        " DescribeInternetGateways DescribeVpcs DescribeVolumes",
    ),
    _own(
        "plan up down run status drift gc",
        "DescribeVpcEndpoints elasticfilesystem:DescribeFileSystems fsx:DescribeFileSystems"
        " iam:ListRoles iam:ListInstanceProfiles",
        optional="file systems, roles and GuardDuty's endpoints are taken to be none",
    ),
    _own("plan up down run status drift gc", "iam:GetRole iam:GetInstanceProfile", "role"),
    # File systems that exist (provision/preflight/existing_storage.py).
    _own(
        "plan up drift",
        "elasticfilesystem:DescribeFileSystems elasticfilesystem:DescribeMountTargets"
        " elasticfilesystem:DescribeMountTargetSecurityGroups DescribeSecurityGroups",
        "their-efs",
    ),
    _own(
        "plan up drift",
        "fsx:DescribeFileSystems DescribeNetworkInterfaces DescribeSecurityGroups",
        "their-fsx",
    ),
    # The nodes' permissions (provision/preflight/node_role.py).
    _own("plan up", "iam:GetPolicy", "role"),
    _own("plan up", "iam:GetInstanceProfile", "profile"),
    _own("up", "iam:PassRole", "profile"),
    _own("gc", "DescribeRegions"),
    _own("status", "DescribeSpotInstanceRequests", "spot"),
    # Capacity (provision/capacity/offers.py, provision/capacity/claim.py).
    _own(
        "capacity",
        "DescribeInstanceTypes DescribeInstanceTypeOfferings DescribeSpotPriceHistory"
        " DescribeCapacityReservations DescribeCapacityBlockOfferings",
    ),
    _own("buy", "DescribeCapacityBlockOfferings"),
    _own("buy", "PurchaseCapacityBlock CreateTags", optional="capacity blocks cannot be bought"),
    _own(
        "up",
        "CreateCapacityReservation DescribeCapacityReservations"
        " CancelCapacityReservation DescribePlacementGroups",
    ),
    _own("up", "iam:CreateServiceLinkedRole", "spot"),
    _own("up extend", "CreateTags"),  # when machines end (provision/aws/instances.py)
    # Nodes that boot (provision/setup, provision/aws/instances.py).
    _own("up", "GetConsoleOutput DescribeInstances"),
    _own("up", "DescribeInstanceTopology", optional="ranks are in the order of launch"),
    _own("up", "ssm:DescribeInstanceInformation", "ssm"),
    _own("up ssh", "ssm:StartSession", "ssm"),
    # Removal, also by an `up` that fails (provision/removal, provision/aws).
    _own(
        "up down run gc",
        "TerminateInstances CancelCapacityReservation DisassociateAddress ReleaseAddress"
        " DeleteNetworkInterface DeleteLaunchTemplate DeletePlacementGroup DeleteKeyPair"
        " RevokeSecurityGroupIngress RevokeSecurityGroupEgress DeleteSecurityGroup DeleteVolume",
    ),
    _own(
        "up down run gc",
        "DeleteNatGateway DeleteSubnet DisassociateRouteTable DeleteRouteTable"
        " DetachInternetGateway DeleteInternetGateway DeleteVpc",
        "network",
    ),
    _own(
        "up down run gc",
        "DeleteVpcEndpoints",
        "network",
        optional="a VPC in which GuardDuty has an endpoint is not removed",
    ),
    _own(
        "up down run gc",
        "elasticfilesystem:DescribeMountTargets elasticfilesystem:DeleteMountTarget"
        " elasticfilesystem:DeleteFileSystem",
        "efs",
    ),
    _own("up down run gc", "fsx:DeleteFileSystem", "fsx-lustre"),
    _own(
        "up down run gc",
        "iam:ListAttachedRolePolicies iam:DetachRolePolicy iam:ListRolePolicies"
        " iam:DeleteRolePolicy iam:DeleteRole iam:RemoveRoleFromInstanceProfile"
        " iam:DeleteInstanceProfile",
        "role",
    ),
    # Pulumi's provider, for each resource type of the program: create, read, update, delete.
    *_provider("aws:ec2/vpc:Vpc",
        "CreateVpc ModifyVpcAttribute",
        "DescribeVpcs DescribeVpcAttribute DescribeNetworkAcls DescribeRouteTables"
        " DescribeSecurityGroups", "ModifyVpcAttribute", "DeleteVpc", "network"),
    *_provider("aws:ec2/subnet:Subnet",
        "CreateSubnet ModifySubnetAttribute", "DescribeSubnets", "ModifySubnetAttribute",
        "DescribeNetworkInterfaces DeleteSubnet", "network"),
    *_provider("aws:ec2/internetGateway:InternetGateway",
        "CreateInternetGateway AttachInternetGateway", "DescribeInternetGateways", "",
        "DetachInternetGateway DeleteInternetGateway", "network"),
    *_provider("aws:ec2/eip:Eip",
        "AllocateAddress AssociateAddress", "DescribeAddresses DescribeAddressesAttribute",
        "AssociateAddress DisassociateAddress", "DisassociateAddress ReleaseAddress"),
    *_provider("aws:ec2/natGateway:NatGateway",
        "CreateNatGateway", "DescribeNatGateways", "", "DeleteNatGateway", "network"),
    *_provider("aws:ec2/routeTable:RouteTable",
        "CreateRouteTable CreateRoute", "DescribeRouteTables",
        "CreateRoute ReplaceRoute DeleteRoute", "DisassociateRouteTable DeleteRouteTable",
        "network"),
    *_provider("aws:ec2/routeTableAssociation:RouteTableAssociation",
        "AssociateRouteTable", "DescribeRouteTables", "", "DisassociateRouteTable", "network"),
    *_provider("aws:ec2/securityGroup:SecurityGroup",
        "CreateSecurityGroup RevokeSecurityGroupEgress AuthorizeSecurityGroupIngress"
        " AuthorizeSecurityGroupEgress", "DescribeSecurityGroups",
        "AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress RevokeSecurityGroupIngress"
        " RevokeSecurityGroupEgress", "DescribeNetworkInterfaces DeleteSecurityGroup"),
    *_provider("aws:ec2/keyPair:KeyPair",
        "ImportKeyPair", "DescribeKeyPairs", "", "DeleteKeyPair"),
    *_provider("aws:ec2/placementGroup:PlacementGroup",
        "CreatePlacementGroup", "DescribePlacementGroups", "", "DeletePlacementGroup"),
    *_provider("aws:ec2/launchTemplate:LaunchTemplate",
        "CreateLaunchTemplate", "DescribeLaunchTemplates DescribeLaunchTemplateVersions",
        "CreateLaunchTemplateVersion ModifyLaunchTemplate", "DeleteLaunchTemplate"),
    # Before an end it clears API termination; without that permission it warns and goes on.
    *_provider("aws:ec2/instance:Instance",
        "RunInstances",
        "DescribeInstances DescribeInstanceTypes DescribeInstanceAttribute"
        " DescribeInstanceCreditSpecifications DescribeVolumes DescribeTags DescribeImages"
        " DescribeLaunchTemplates DescribeLaunchTemplateVersions DescribeNetworkInterfaces",
        "ModifyInstanceAttribute ModifyInstanceMetadataOptions StopInstances StartInstances",
        "ModifyInstanceAttribute TerminateInstances"),
    # A spot instance's request is read, and cancelled before its end. 5.49 does so (recorded
    # 2026-11-26), and goes no further if AWS refuses. Later versions leave the cancellation out by
    # mistake (https://github.com/hashicorp/terraform-provider-aws/pull/41206).
    *_provider("aws:ec2/instance:Instance",
        "", "DescribeSpotInstanceRequests", "", "CancelSpotInstanceRequests", "spot"),
    # The boundary is set or changed, never removed (`Resolved.boundary`).
    *_provider("aws:iam/role:Role",
        "iam:CreateRole iam:TagRole",
        "iam:GetRole iam:ListRolePolicies iam:GetRolePolicy iam:ListAttachedRolePolicies",
        "iam:UpdateAssumeRolePolicy iam:UpdateRoleDescription iam:PutRolePermissionsBoundary"
        " iam:TagRole iam:UntagRole",
        "iam:ListInstanceProfilesForRole iam:RemoveRoleFromInstanceProfile iam:DeleteRole",
        "role"),
    *_provider("aws:iam/rolePolicy:RolePolicy",
        "iam:PutRolePolicy", "iam:GetRolePolicy", "iam:PutRolePolicy", "iam:DeleteRolePolicy",
        "role"),
    # PassRole: AddRoleToInstanceProfile and RunInstances need it for the role.
    *_provider("aws:iam/instanceProfile:InstanceProfile",
        "iam:CreateInstanceProfile iam:TagInstanceProfile iam:AddRoleToInstanceProfile"
        " iam:PassRole", "iam:GetInstanceProfile iam:GetRole",
        "iam:TagInstanceProfile iam:UntagInstanceProfile",
        "iam:RemoveRoleFromInstanceProfile iam:DeleteInstanceProfile", "role"),
    *_provider("aws:efs/fileSystem:FileSystem",
        "elasticfilesystem:CreateFileSystem elasticfilesystem:TagResource"
        " iam:CreateServiceLinkedRole",
        "elasticfilesystem:DescribeFileSystems elasticfilesystem:DescribeLifecycleConfiguration",
        "elasticfilesystem:UpdateFileSystem elasticfilesystem:TagResource"
        " elasticfilesystem:UntagResource", "elasticfilesystem:DeleteFileSystem", "efs"),
    # Those of EC2: CreateMountTarget and DeleteMountTarget in EFS's API reference, whose text
    # botocore's model of EFS has ("The operation also requires permissions for …").
    *_provider("aws:efs/mountTarget:MountTarget",
        "elasticfilesystem:CreateMountTarget DescribeSubnets DescribeNetworkInterfaces"
        " CreateNetworkInterface",
        "elasticfilesystem:DescribeMountTargets"
        " elasticfilesystem:DescribeMountTargetSecurityGroups",
        "elasticfilesystem:ModifyMountTargetSecurityGroups",
        "elasticfilesystem:DeleteMountTarget DeleteNetworkInterface", "efs"),
    # GetSecurityGroupsForVpc: a dependent action of CreateFileSystem (Service Authorization
    # Reference, FSx).
    *_provider("aws:fsx/lustreFileSystem:LustreFileSystem",
        "fsx:CreateFileSystem fsx:TagResource GetSecurityGroupsForVpc iam:CreateServiceLinkedRole",
        "fsx:DescribeFileSystems", "fsx:TagResource fsx:UntagResource", "fsx:DeleteFileSystem",
        "fsx-lustre"),
)  # fmt: skip
"""All calls. sts:GetCallerIdentity is not among them: it needs no permission
(https://docs.aws.amazon.com/STS/latest/APIReference/API_GetCallerIdentity.html, 2026-11-23)."""


def needed(
    commands: Iterable[str] = COMMANDS, features: Iterable[Feature] = FEATURES
) -> frozenset[str]:
    """Return the actions that the commands need for clusters with the features."""
    chosen, present = frozenset(commands), frozenset(features)
    return frozenset(
        action
        for need in NEEDS
        if need.commands & chosen and (need.feature is None or need.feature in present)
        for action in need.actions
    )


def optional(actions: Iterable[str]) -> dict[str, str]:
    """Return the optional ones of the actions, each with what is missing without it.

    An action that every cluster requires somewhere is not optional.
    """
    required = {
        action
        for need in NEEDS
        if not need.optional and need.feature is None
        for action in need.actions
    }
    return {
        action: need.optional
        for need in NEEDS
        if need.optional
        for action in need.actions
        if action in set(actions) - required
    }


def features_of(cluster: Cluster) -> frozenset[Feature]:
    """Return the features of a cluster file."""
    shared = cluster.storage.shared
    kind = shared.type if shared else ""
    exists = shared is not None and shared.id is not None
    has: dict[Feature, bool] = {
        "network": not cluster.network.exists,
        "efs": kind == "efs" and not exists,
        "fsx-lustre": kind == "fsx-lustre" and not exists,
        "their-efs": kind == "efs" and exists,
        "their-fsx": kind == "fsx-lustre" and exists,
        "ssm": cluster.network.uses_session_manager,
        "role": cluster.needs_role,
        "profile": cluster.instance_profile is not None,
        "spot": cluster.capacity.type == "spot",
    }
    return frozenset(feature for feature, present in has.items() if present)
