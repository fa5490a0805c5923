"""RunInstances keeps every network interface, and refuses the layouts that EC2 refuses."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.world import World, layout, refused, world

pytestmark = pytest.mark.slow

P4D = [(0, 0, "interface"), (0, 1, "efa-only"), (1, 0, "efa-only"), (2, 0, "efa-only"),
       (3, 0, "efa-only")]  # fmt: skip


@pytest.fixture
def region() -> Iterator[World]:
    with world() as made:
        yield made


@pytest.mark.parametrize("through_template", [False, True])
def test_every_interface_survives_with_card_device_and_type(
    region: World, through_template: bool
) -> None:
    more: dict[str, Any] = {}
    if through_template:
        more["LaunchTemplate"] = {"LaunchTemplateId": region.template(), "Version": "$Latest"}
    (instance,) = region.run(**more)
    assert layout(region.instance(instance)["NetworkInterfaces"]) == P4D
    filters = [{"Name": "attachment.instance-id", "Values": [instance]}]
    separately = region.ec2.describe_network_interfaces(Filters=filters)["NetworkInterfaces"]
    assert sorted(layout(separately)) == sorted(P4D)


def test_a_p5_has_all_of_its_32_efas(region: World) -> None:
    interfaces = [region.interface(0, 0, "interface"), region.interface(0, 1, "efa-only")]
    interfaces += [region.interface(card, 0, "efa-only") for card in range(1, 32)]
    (instance,) = region.run(InstanceType="p5.48xlarge", NetworkInterfaces=interfaces)
    shown = layout(region.instance(instance)["NetworkInterfaces"])
    assert [kind for _, _, kind in shown].count("efa-only") == 32


def test_an_efa_only_interface_takes_no_address(region: World) -> None:
    def free() -> int:
        (subnet,) = region.ec2.describe_subnets(SubnetIds=[region.subnet])["Subnets"]
        return int(subnet["AvailableIpAddressCount"])

    before = free()
    (instance,) = region.run()
    interfaces = region.instance(instance)["NetworkInterfaces"]
    assert [i.get("PrivateIpAddress") for i in interfaces] == ["10.213.0.4", None, None, None, None]
    assert before - free() == 1


def test_the_first_three_addresses_are_awss_own(region: World) -> None:
    ids = region.run(3)
    assert {region.instance(i)["PrivateIpAddress"] for i in ids} == {
        "10.213.0.4",
        "10.213.0.5",
        "10.213.0.6",
    }


@pytest.mark.parametrize(
    ("places", "code", "text"),
    [
        (
            [(0, 1, "interface")],
            "InvalidParameterCombination",
            "The primary network interface must have network card index 0 and device index 0.",
        ),
        (
            [(0, 0, "efa-only")],
            "InvalidParameterCombination",
            "The primary network interface cannot be of type efa-only.",
        ),
        (
            [(0, 0, "efa"), (0, 1, "efa-only")],
            "InvalidParameterCombination",
            "Only one EFA is allowed per network card (card 0).",
        ),
        (
            [(0, 0, "interface"), (4, 0, "efa-only")],
            "InvalidParameterValue",
            "Network card index 4 is invalid: p4d.24xlarge has network cards 0 to 3.",
        ),
        (
            [(0, device, "interface") for device in range(16)],
            "AttachmentLimitExceeded",
            "Interface count 16 exceeds the limit for p4d.24xlarge on network card 0 (15).",
        ),
        (
            [(0, 0, "interface"), (0, 0, "interface")],
            "InvalidParameterValue",
            "Each network interface must have a unique network card and device index.",
        ),
    ],
)
def test_a_layout_that_ec2_refuses(
    region: World, places: list[tuple[int, int, str]], code: str, text: str
) -> None:
    with refused(code, text):
        region.run(NetworkInterfaces=[region.interface(*place) for place in places])
    assert region.ec2.describe_instances()["Reservations"] == []
    assert region.ec2.describe_network_interfaces()["NetworkInterfaces"] == []


def test_card_0_of_a_p6_b300_has_no_efa(region: World) -> None:
    subnet = region.new_subnet("10.213.16.0/20", "us-east-1b")
    interfaces = [region.interface(0, 0, "interface"), region.interface(0, 1, "efa-only")]
    for interface in interfaces:
        interface["SubnetId"] = subnet
    with refused(
        "InvalidParameterCombination",
        "Network card 0 of p6-b300.48xlarge does not support interface type efa-only.",
    ):
        region.run(InstanceType="p6-b300.48xlarge", NetworkInterfaces=interfaces)


def test_several_interfaces_get_no_public_address(region: World) -> None:
    interfaces = region.p4d()
    interfaces[0]["AssociatePublicIpAddress"] = True
    with refused(
        "InvalidParameterCombination",
        "The associatePublicIPAddress parameter cannot be specified when launching with multiple"
        " network interfaces.",
    ):
        region.run(NetworkInterfaces=interfaces)


def test_one_interface_gets_a_public_address_of_the_labs(region: World) -> None:
    primary = {
        "DeviceIndex": 0,
        "SubnetId": region.subnet,
        "Groups": [region.group],
        "AssociatePublicIpAddress": True,
    }
    (instance,) = region.run(InstanceType="t3.small", NetworkInterfaces=[primary])
    shown = region.instance(instance)
    assert shown["PublicIpAddress"] == "198.18.0.1"
    (interface,) = shown["NetworkInterfaces"]
    assert interface["Association"]["IpOwnerId"] == "amazon"


def test_a_subnet_that_maps_public_addresses_does_so_for_one_interface(region: World) -> None:
    region.ec2.modify_subnet_attribute(SubnetId=region.subnet, MapPublicIpOnLaunch={"Value": True})
    (small,) = region.run(InstanceType="t3.small", SubnetId=region.subnet)
    (big,) = region.run()
    assert region.instance(small)["PublicIpAddress"] == "198.18.0.1"
    assert "PublicIpAddress" not in region.instance(big)


def test_a_full_subnet_starts_nothing(region: World) -> None:
    tiny = region.new_subnet("10.213.16.0/28", "us-east-1a")
    assert len(region.run(11, InstanceType="t3.small", SubnetId=tiny)) == 11
    with refused(
        "InsufficientFreeAddressesInSubnet",
        f"There are not enough free addresses in subnet '{tiny}' to satisfy the requested number"
        " of instances.",
    ):
        region.run(InstanceType="t3.small", SubnetId=tiny)


def test_the_interface_of_an_instance_is_not_deleted(region: World) -> None:
    (instance,) = region.run()
    used = region.instance(instance)["NetworkInterfaces"][1]["NetworkInterfaceId"]
    text = f"Network interface '{used}' is currently in use."
    with refused("InvalidParameterValue", text):
        region.ec2.delete_network_interface(NetworkInterfaceId=used)
    free = region.ec2.create_network_interface(SubnetId=region.subnet)["NetworkInterface"]
    region.ec2.delete_network_interface(NetworkInterfaceId=free["NetworkInterfaceId"])
    assert len(region.instance(instance)["NetworkInterfaces"]) == len(P4D)
