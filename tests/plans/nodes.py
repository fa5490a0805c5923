"""A node as it is planned, and as EC2 says that it is."""

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from infra.fleet import Fleet
from infra.stack.changes import INSTANCE
from tests.plans.text import TEMPLATE, Planned

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True)
class Node:
    """`interfaces` are (card, device, type), `disks` (device, GiB, type, encrypted, IOPS, MiB/s);
    `reservation` is the user's own, `profile` the name of an IAM instance profile; empty for none.
    """

    instance_type: str
    image: str
    key: str
    zone: str
    group: str
    market: str
    reservation: str
    profile: str
    has_public_address: bool
    at_shutdown: str
    metadata_tokens: str
    interfaces: tuple[tuple[int, int, str], ...]
    disks: tuple[tuple[Any, ...], ...]


def nodes_as_planned(plan: Planned) -> list[Node]:
    """By the launch template that the engine will ask for; nothing of it is gpuctl's word."""
    template = plan.resources[TEMPLATE]
    reservation = template.get("capacityReservationSpecification", {})
    names = plan.fleet.resolved.node_names
    return [
        Node(
            instance_type=template["instanceType"],
            image=template["imageId"],
            key=template["keyName"],
            zone=plan.fleet.resolved.zone,
            group=template.get("placement", {}).get("groupName", ""),
            market=template.get("instanceMarketOptions", {}).get("marketType", "on-demand"),
            reservation=reservation.get("capacityReservationTarget", {}).get(
                "capacityReservationId", ""
            ),
            profile=template.get("iamInstanceProfile", {}).get("name", ""),
            has_public_address=f"aws:ec2/eip:Eip {name}" in plan.resources,
            at_shutdown=template["instanceInitiatedShutdownBehavior"],
            metadata_tokens=node["metadataOptions"]["httpTokens"],
            interfaces=tuple(
                (i["networkCardIndex"], i["deviceIndex"], i["interfaceType"])
                for i in template["networkInterfaces"]
            ),
            disks=tuple(_planned_disk(disk) for disk in template["blockDeviceMappings"]),
        )
        for name in names
        for node in (plan.resources[f"{INSTANCE} {name}"],)
    ]


def _planned_disk(mapping: Any) -> tuple[Any, ...]:
    ebs = mapping["ebs"]
    # What is not said AWS gives by itself: "Amazon EBS General Purpose SSD volumes", 2026-11-20.
    return (
        mapping["deviceName"],
        ebs["volumeSize"],
        ebs["volumeType"],
        ebs["encrypted"] == "true",
        ebs.get("iops", 3000),
        ebs.get("throughput", 125),
    )


def nodes_as_made(ec2: "EC2Client", fleet: Fleet, plan: Planned) -> list[Node]:
    """By DescribeInstances, DescribeNetworkInterfaces and DescribeVolumes."""
    reservation = plan.fleet.resolved.reservation
    return [
        _made(ec2, node.instance_id, reservation.id if reservation else "") for node in fleet.nodes
    ]


def _made(ec2: "EC2Client", instance_id: str, reservation: str) -> Node:
    (told,) = ec2.describe_instances(InstanceIds=[instance_id])["Reservations"]
    (instance,) = told["Instances"]
    behaviour = ec2.describe_instance_attribute(
        InstanceId=instance_id, Attribute="instanceInitiatedShutdownBehavior"
    )["InstanceInitiatedShutdownBehavior"]
    held = str(instance.get("CapacityReservationId", ""))
    return Node(
        instance_type=instance["InstanceType"],
        image=instance["ImageId"],
        key=instance["KeyName"],
        zone=instance["Placement"]["AvailabilityZone"],
        group=instance["Placement"].get("GroupName", ""),
        market=instance.get("InstanceLifecycle", "on-demand"),
        reservation=held if held == reservation else "",  # a claim is no reservation of the user's
        profile=str(instance.get("IamInstanceProfile", {}).get("Arn", "")).rpartition("/")[2],
        has_public_address="PublicIpAddress" in instance,
        at_shutdown=behaviour["Value"],
        metadata_tokens=instance["MetadataOptions"]["HttpTokens"],
        interfaces=_interfaces(ec2, instance_id),
        disks=_disks(ec2, instance_id),
    )


def _interfaces(ec2: "EC2Client", instance_id: str) -> tuple[tuple[int, int, str], ...]:
    wanted: Any = [{"Name": "attachment.instance-id", "Values": [instance_id]}]
    told = ec2.describe_network_interfaces(Filters=wanted)["NetworkInterfaces"]
    places: list[tuple[int, int, str]] = []
    for interface in told:
        attachment = interface["Attachment"]
        card = attachment.get("NetworkCardIndex", 0)
        places.append((card, attachment["DeviceIndex"], interface["InterfaceType"]))
    return tuple(sorted(places))


def _disks(ec2: "EC2Client", instance_id: str) -> tuple[tuple[Any, ...], ...]:
    wanted: Any = [{"Name": "attachment.instance-id", "Values": [instance_id]}]
    volumes = ec2.describe_volumes(Filters=wanted)["Volumes"]
    found = [
        (
            volume["Attachments"][0]["Device"],
            volume["Size"],
            volume["VolumeType"],
            volume["Encrypted"],
            volume.get("Iops", 3000),
            volume.get("Throughput", 125),
        )
        for volume in volumes
    ]
    return tuple(sorted(found))
