"""The calls of Pulumi's AWS provider for each resource type of the program.

On AWS the provider that Pulumi shares with Terraform makes these calls, not gpuctl. Source: the
resource's file in https://github.com/hashicorp/terraform-provider-aws/tree/main/internal/service,
functions Create, Read, Update and Delete, read 2026-11-23 and 2026-11-25 as far as gpuctl's inputs
lead through them: the program moves no association to another table, and replaces an FSx of another
size. From memory, not read: NAT and internet gateway, route table association, key pair, placement
group, mount target, role policy. The lab's provider makes these calls and no others
(tests/provision/test_permissions.py).
What AWS needs in addition, such as ec2:CreateTags with a creation, is with the operation.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, fields
from typing import Literal

Feature = Literal["network", "efs", "fsx-lustre", "ssm", "role", "profile", "spot"]
"""What a cluster file can have that needs further actions: `network` is a VPC that gpuctl makes,
`role` the nodes' role that it makes, `profile` an instance profile that an administrator made."""

_TAGS = ("ec2:CreateTags", "ec2:DeleteTags")


@dataclass(frozen=True)
class ProviderCalls:
    """The IAM actions of one type; `feature` is None if every cluster may have it."""

    create: tuple[str, ...]
    read: tuple[str, ...]
    update: tuple[str, ...]
    delete: tuple[str, ...]
    feature: Feature | None = None

    def all(self) -> Iterator[str]:
        """Yield all actions."""
        for field in fields(self)[:4]:
            yield from getattr(self, field.name)


def _ec2(
    create: str, read: str, update: str, delete: str, feature: Feature | None = None
) -> ProviderCalls:
    """Return the calls of a type of EC2; the actions are names with spaces between them."""
    made, seen, changed, removed = (
        tuple(f"ec2:{name}" for name in names.split()) for names in (create, read, update, delete)
    )
    return ProviderCalls((*made, "ec2:CreateTags"), seen, (*changed, *_TAGS), removed, feature)


CALLS: Mapping[str, ProviderCalls] = {
    "aws:ec2/vpc:Vpc": _ec2(
        "CreateVpc ModifyVpcAttribute",
        "DescribeVpcs DescribeVpcAttribute DescribeNetworkAcls DescribeRouteTables"
        " DescribeSecurityGroups",
        "ModifyVpcAttribute",
        "DeleteVpc",
        "network",
    ),
    "aws:ec2/subnet:Subnet": _ec2(
        "CreateSubnet ModifySubnetAttribute",
        "DescribeSubnets",
        "ModifySubnetAttribute",
        "DescribeNetworkInterfaces DeleteSubnet",
        "network",
    ),
    "aws:ec2/internetGateway:InternetGateway": _ec2(
        "CreateInternetGateway AttachInternetGateway",
        "DescribeInternetGateways",
        "",
        "DetachInternetGateway DeleteInternetGateway",
        "network",
    ),
    "aws:ec2/eip:Eip": _ec2(
        "AllocateAddress AssociateAddress",
        "DescribeAddresses DescribeAddressesAttribute",
        "AssociateAddress DisassociateAddress",
        "DisassociateAddress ReleaseAddress",
    ),
    "aws:ec2/natGateway:NatGateway": _ec2(
        "CreateNatGateway", "DescribeNatGateways", "", "DeleteNatGateway", "network"
    ),
    "aws:ec2/routeTable:RouteTable": _ec2(
        "CreateRouteTable CreateRoute",
        "DescribeRouteTables",
        "CreateRoute ReplaceRoute DeleteRoute",
        "DisassociateRouteTable DeleteRouteTable",
        "network",
    ),
    "aws:ec2/routeTableAssociation:RouteTableAssociation": _ec2(
        "AssociateRouteTable",
        "DescribeRouteTables",
        "",
        "DisassociateRouteTable",
        "network",
    ),
    "aws:ec2/securityGroup:SecurityGroup": _ec2(
        "CreateSecurityGroup RevokeSecurityGroupEgress AuthorizeSecurityGroupIngress"
        " AuthorizeSecurityGroupEgress",
        "DescribeSecurityGroups",
        "AuthorizeSecurityGroupIngress AuthorizeSecurityGroupEgress RevokeSecurityGroupIngress"
        " RevokeSecurityGroupEgress",
        "DescribeNetworkInterfaces DeleteSecurityGroup",
    ),
    "aws:ec2/keyPair:KeyPair": _ec2("ImportKeyPair", "DescribeKeyPairs", "", "DeleteKeyPair"),
    "aws:ec2/placementGroup:PlacementGroup": _ec2(
        "CreatePlacementGroup", "DescribePlacementGroups", "", "DeletePlacementGroup"
    ),
    "aws:ec2/launchTemplate:LaunchTemplate": _ec2(
        "CreateLaunchTemplate",
        "DescribeLaunchTemplates DescribeLaunchTemplateVersions",
        "CreateLaunchTemplateVersion ModifyLaunchTemplate",
        "DeleteLaunchTemplate",
    ),
    "aws:ec2/instance:Instance": _ec2(
        "RunInstances",
        "DescribeInstances DescribeInstanceTypes DescribeInstanceAttribute"
        " DescribeInstanceCreditSpecifications DescribeVolumes DescribeTags DescribeImages"
        " DescribeLaunchTemplates DescribeLaunchTemplateVersions DescribeNetworkInterfaces",
        "ModifyInstanceAttribute ModifyInstanceMetadataOptions StopInstances StartInstances",
        # Without the first one the provider warns and goes on; it clears API termination.
        "ModifyInstanceAttribute TerminateInstances",
    ),
    "aws:iam/role:Role": ProviderCalls(
        ("iam:CreateRole", "iam:TagRole"),
        ("iam:GetRole", "iam:ListRolePolicies", "iam:GetRolePolicy",
         "iam:ListAttachedRolePolicies"),
        # The boundary is set or changed, never removed (`Resolved.boundary`).
        ("iam:UpdateAssumeRolePolicy", "iam:UpdateRoleDescription",
         "iam:PutRolePermissionsBoundary", "iam:TagRole", "iam:UntagRole"),
        ("iam:ListInstanceProfilesForRole", "iam:RemoveRoleFromInstanceProfile", "iam:DeleteRole"),
        "role",
    ),
    "aws:iam/rolePolicy:RolePolicy": ProviderCalls(
        ("iam:PutRolePolicy",), ("iam:GetRolePolicy",), ("iam:PutRolePolicy",),
        ("iam:DeleteRolePolicy",), "role",
    ),
    "aws:iam/instanceProfile:InstanceProfile": ProviderCalls(
        # PassRole: AddRoleToInstanceProfile and RunInstances need it for the role.
        ("iam:CreateInstanceProfile", "iam:TagInstanceProfile", "iam:AddRoleToInstanceProfile",
         "iam:PassRole"),
        ("iam:GetInstanceProfile", "iam:GetRole"),
        ("iam:TagInstanceProfile", "iam:UntagInstanceProfile"),
        ("iam:RemoveRoleFromInstanceProfile", "iam:DeleteInstanceProfile"),
        "role",
    ),
    "aws:efs/fileSystem:FileSystem": ProviderCalls(
        ("elasticfilesystem:CreateFileSystem", "elasticfilesystem:TagResource",
         "iam:CreateServiceLinkedRole"),
        ("elasticfilesystem:DescribeFileSystems",
         "elasticfilesystem:DescribeLifecycleConfiguration"),
        ("elasticfilesystem:UpdateFileSystem", "elasticfilesystem:TagResource",
         "elasticfilesystem:UntagResource"),
        ("elasticfilesystem:DeleteFileSystem",),
        "efs",
    ),
    "aws:efs/mountTarget:MountTarget": ProviderCalls(
        # Those of EC2: CreateMountTarget and DeleteMountTarget in EFS's API reference, whose text
        # botocore's model of EFS has ("The operation also requires permissions for …").
        ("elasticfilesystem:CreateMountTarget", "ec2:DescribeSubnets",
         "ec2:DescribeNetworkInterfaces", "ec2:CreateNetworkInterface"),
        ("elasticfilesystem:DescribeMountTargets",
         "elasticfilesystem:DescribeMountTargetSecurityGroups"),
        ("elasticfilesystem:ModifyMountTargetSecurityGroups",),
        ("elasticfilesystem:DeleteMountTarget", "ec2:DeleteNetworkInterface"),
        "efs",
    ),
    "aws:fsx/lustreFileSystem:LustreFileSystem": ProviderCalls(
        # GetSecurityGroupsForVpc: a dependent action of CreateFileSystem (Service Authorization
        # Reference, FSx).
        ("fsx:CreateFileSystem", "fsx:TagResource", "ec2:GetSecurityGroupsForVpc",
         "iam:CreateServiceLinkedRole"),
        ("fsx:DescribeFileSystems",),
        ("fsx:TagResource", "fsx:UntagResource"),
        ("fsx:DeleteFileSystem",),
        "fsx-lustre",
    ),
}  # fmt: skip
"""The calls by Pulumi's name of the type."""

SPOT = _ec2("", "DescribeSpotInstanceRequests", "", "CancelSpotInstanceRequests", "spot")
"""The further calls for a spot instance: its request is read, and cancelled before its end.

5.49 does so (recorded 2026-11-26), and goes no further if AWS refuses. Later versions leave the
cancellation out by mistake (https://github.com/hashicorp/terraform-provider-aws/pull/41206)."""

ALL_CALLS = (*CALLS.values(), SPOT)
