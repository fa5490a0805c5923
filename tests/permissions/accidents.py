"""What somebody with all permissions does to a cluster between two commands."""

import json
from typing import TYPE_CHECKING

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import CLUSTER_TAG, ID_TAG
from config.target import Target
from provision.aws.resources import Resource, find_all
from tests.infra.region import administrator

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def by_hand(target: Target, cluster: Cluster) -> None:
    """Change what the next `up` restores: routes, gateway, bastion, role, file system."""
    found: dict[str, list[Resource]] = {}
    for one in find_all(target, cluster.name):
        found.setdefault(one.kind, []).append(one)
    ec2 = administrator(target, "ec2")
    (gateway,) = found["internet gateway"]
    for table in found["route table"]:
        ec2.create_route(
            RouteTableId=table.id, DestinationCidrBlock="192.0.2.0/24", GatewayId=gateway.id
        )
    for nat in found.get("NAT gateway", ()):
        ec2.delete_nat_gateway(NatGatewayId=nat.id)
    for machine in found["instance"]:
        if machine.name.endswith("-bastion"):
            ec2.modify_instance_metadata_options(InstanceId=machine.id, HttpPutResponseHopLimit=5)
            _resize(ec2, machine.id)
    for role in found.get("IAM role", ()):
        iam = administrator(target, "iam")
        iam.update_role_description(RoleName=role.id, Description="changed")
        trusted = iam.get_role(RoleName=role.id)["Role"]["AssumeRolePolicyDocument"]
        others = {"Effect": "Allow", "Principal": {"AWS": "*"}, "Action": "sts:AssumeRole"}
        trusted["Statement"].append(others)
        iam.update_assume_role_policy(RoleName=role.id, PolicyDocument=json.dumps(trusted))
        iam.attach_role_policy(
            RoleName=role.id, PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
        )
    for files in found.get("EFS file system", ()):
        efs = administrator(target, "efs")
        efs.update_file_system(FileSystemId=files.id, ThroughputMode="bursting")
        (mount,) = efs.describe_mount_targets(FileSystemId=files.id)["MountTargets"]
        (group,) = ec2.describe_security_groups(
            Filters=[
                {"Name": "group-name", "Values": ["default"]},
                {"Name": "vpc-id", "Values": [found["VPC"][0].id]},
            ]
        )["SecurityGroups"]
        efs.modify_mount_target_security_groups(
            MountTargetId=mount["MountTargetId"], SecurityGroups=[group["GroupId"]]
        )


def _resize(ec2: "EC2Client", instance: str) -> None:
    ec2.stop_instances(InstanceIds=[instance])
    ec2.get_waiter("instance_stopped").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1})
    ec2.modify_instance_attribute(InstanceId=instance, InstanceType={"Value": "t3.medium"})
    ec2.start_instances(InstanceIds=[instance])
    ec2.get_waiter("instance_running").wait(InstanceIds=[instance], WaiterConfig={"Delay": 1})


def leftover_interface(target: Target, cluster: Cluster, cluster_id: str) -> None:
    """Create an interface with the cluster's tags, as a killed launch may leave one.

    It takes the address of a node that has one.
    """
    subnet = next(one for one in find_all(target, cluster.name) if one.kind == "subnet")
    tags = {CLUSTER_TAG: cluster.name, ID_TAG: cluster_id}
    ec2 = administrator(target, "ec2")
    made = ec2.create_network_interface(
        SubnetId=subnet.id,
        TagSpecifications=[
            {
                "ResourceType": "network-interface",
                "Tags": [{"Key": key, "Value": value} for key, value in tags.items()],
            }
        ],
    )
    for address in find_all(target, cluster.name, ["elastic IP"]):
        if "-node" in address.name:
            ec2.associate_address(
                AllocationId=address.id,
                NetworkInterfaceId=made["NetworkInterface"]["NetworkInterfaceId"],
                AllowReassociation=True,
            )
