"""The comparison with the SDK's classes finds what the real provider would refuse."""

from typing import Any

import pytest

from lab.provider.values import UNKNOWN
from tests.plans.sdk_types import misfits

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"


@pytest.mark.parametrize(
    ("token", "inputs", "found"),
    [
        ("aws:ec2/vpc:Vpc", {"cidrBlock": "10.0.0.0/16", "tags": {"Name": "demo"}}, []),
        ("aws:ec2/vpc:Vpc", {"cidr": "10.0.0.0/16"}, ["Vpc.cidr: VpcArgs has no such input"]),
        ("aws:ec2/subnet:Subnet", {"vpcId": UNKNOWN}, []),
        ("aws:ec2/subnet:Subnet", {}, ["Subnet.vpcId: required and missing"]),
        (INSTANCE, {"securityGroups": ["sg-1"]}, ["Instance.securityGroups: deprecated"]),
        (
            TEMPLATE,
            {"networkInterfaces": [{"deviceIndex": 0.0}, {"deviceIndex": "0", "card": 1}]},
            [
                "LaunchTemplate.networkInterfaces[1].deviceIndex: '0' is no int",
                "LaunchTemplate.networkInterfaces[1].card: LaunchTemplateNetworkInterfaceArgs has"
                " no such input",
            ],
        ),
        (
            TEMPLATE,
            {"blockDeviceMappings": [{"ebs": {"encrypted": True, "volumeSize": 100}}]},
            ["LaunchTemplate.blockDeviceMappings[0].ebs.encrypted: True is no str"],
        ),
        (TEMPLATE, {"tags": {"Name": 1}}, ["LaunchTemplate.tags.Name: 1 is no str"]),
        (
            TEMPLATE,
            {"tags": ["Name"]},
            ["LaunchTemplate.tags: ['Name'] is no Mapping"],
        ),
    ],
)
def test_what_the_sdk_does_not_have(token: str, inputs: dict[str, Any], found: list[str]) -> None:
    assert misfits(token, inputs) == found
