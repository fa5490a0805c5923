"""A region of the lab without machines, entered by boto3 over HTTP on loopback."""

import base64
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from lab.access_key import AccessKey
from lab.api.machines import Machines
from lab.api.server import ApiServer
from tests.labs import KEY

DLAMI = "/aws/service/deeplearning/ami/x86_64/base-oss-nvidia-driver-gpu-ubuntu-24.04/latest/ami-id"


class World:
    """A VPC with one subnet in us-east-1a, and the DLAMI."""

    def __init__(self, url: str, key: AccessKey = KEY) -> None:
        self.url = url
        self.key = key
        self.ec2: Any = self.client("ec2")
        self.image = self.client("ssm").get_parameter(Name=DLAMI)["Parameter"]["Value"]
        self.vpc = self.ec2.create_vpc(CidrBlock="10.213.0.0/16")["Vpc"]["VpcId"]
        self.subnet = self.new_subnet("10.213.0.0/20", "us-east-1a")
        self.group = self.ec2.create_security_group(
            GroupName="nodes", Description="nodes", VpcId=self.vpc
        )["GroupId"]

    def client(self, service: str, region: str = "us-east-1", key: AccessKey | None = None) -> Any:
        key = key or self.key
        return boto3.client(  # type: ignore[call-overload]
            service,
            endpoint_url=self.url,
            region_name=region,
            aws_access_key_id=key.key_id,
            aws_secret_access_key=key.secret,
            config=Config(retries={"total_max_attempts": 1}),
        )

    def new_subnet(self, cidr: str, zone: str) -> str:
        answer = self.ec2.create_subnet(VpcId=self.vpc, CidrBlock=cidr, AvailabilityZone=zone)
        return str(answer["Subnet"]["SubnetId"])

    def interface(self, card: int, device: int, kind: str, **more: Any) -> dict[str, Any]:
        return {
            "NetworkCardIndex": card,
            "DeviceIndex": device,
            "InterfaceType": kind,
            "SubnetId": self.subnet,
            "Groups": [self.group],
            **more,
        }

    def p4d(self) -> list[dict[str, Any]]:
        """The layout of a p4d with four EFAs and one address."""
        first = [self.interface(0, 0, "interface"), self.interface(0, 1, "efa-only")]
        return first + [self.interface(card, 0, "efa-only") for card in (1, 2, 3)]

    def template(self, **data: Any) -> str:
        default = {
            "ImageId": self.image,
            "InstanceType": "p4d.24xlarge",
            "NetworkInterfaces": self.p4d(),
            "UserData": base64.b64encode(b"#cloud-config\n").decode(),
        }
        answer = self.ec2.create_launch_template(
            LaunchTemplateName="node", LaunchTemplateData={**default, **data}
        )
        return str(answer["LaunchTemplate"]["LaunchTemplateId"])

    def run(self, count: int = 1, **more: Any) -> list[str]:
        """Ids of instances launched with these parameters, by default p4d with all interfaces."""
        default: dict[str, Any] = {}
        if "LaunchTemplate" not in more:
            default = {"ImageId": self.image, "InstanceType": "p4d.24xlarge"}
            if "SubnetId" not in more:
                default["NetworkInterfaces"] = self.p4d()
        arguments = {"MinCount": count, "MaxCount": count, **default, **more}
        return [i["InstanceId"] for i in self.ec2.run_instances(**arguments)["Instances"]]

    def instance(self, instance_id: str) -> dict[str, Any]:
        answer = self.ec2.describe_instances(InstanceIds=[instance_id])
        found: dict[str, Any] = answer["Reservations"][0]["Instances"][0]
        return found

    def state(self, instance_id: str) -> str:
        return str(self.instance(instance_id)["State"]["Name"])


@contextmanager
def world(
    machines: Machines | None = None,
    capacity: Path | None = None,
    faults: Path | None = None,
    profile_delay_s: float = 0.0,
) -> Iterator[World]:
    with ApiServer(KEY, machines, capacity, faults=faults, profile_delay_s=profile_delay_s) as api:
        yield World(api.url)


@contextmanager
def refused(code: str, text: str, status: int = 400) -> Iterator[None]:
    """The block is refused with exactly this code, text and HTTP status."""
    with pytest.raises(ClientError) as caught:
        yield
    error = caught.value.response["Error"]
    assert (error["Code"], error["Message"]) == (code, text)
    assert caught.value.response["ResponseMetadata"]["HTTPStatusCode"] == status


def layout(interfaces: Sequence[dict[str, Any]]) -> list[tuple[int, int, str]]:
    return [
        (i["Attachment"]["NetworkCardIndex"], i["Attachment"]["DeviceIndex"], i["InterfaceType"])
        for i in interfaces
    ]
