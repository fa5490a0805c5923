"""VPCs, addresses and NAT gateways: the lab's network hears of them, and order is AWS's."""

from collections.abc import Iterator

import pytest

from config.errors import LabError
from lab.api.machines import NoMachines
from tests.lab.world import World, refused, world


class Ranges(NoMachines):
    """Keeps the ranges that exist, and the addresses of machines."""

    def __init__(self) -> None:
        super().__init__()
        self.ranges: list[str] = []
        self.public: list[str] = []

    def add_vpc(self, cidr: str) -> None:
        if cidr in self.ranges:
            raise LabError(f"VPC range {cidr} overlaps the lab's {cidr}", "take another range")
        self.ranges.append(cidr)

    def remove_vpc(self, cidr: str) -> None:
        self.ranges.remove(cidr)

    def add_subnet(self, cidr: str) -> None:
        self.ranges.append(cidr)

    def remove_subnet(self, cidr: str) -> None:
        self.ranges.remove(cidr)

    def add_public_ip(self, instance_id: str, address: str) -> None:
        self.public.append(address)

    def remove_public_ip(self, instance_id: str, address: str) -> None:
        self.public.remove(address)


@pytest.fixture
def machines() -> Ranges:
    return Ranges()


@pytest.fixture
def region(machines: Ranges) -> Iterator[World]:
    with world(machines) as made:
        yield made


def test_the_network_has_what_the_api_has(region: World, machines: Ranges) -> None:
    assert machines.ranges == ["10.213.0.0/16", "10.213.0.0/20"]
    region.ec2.delete_security_group(GroupId=region.group)
    region.ec2.delete_subnet(SubnetId=region.subnet)
    region.ec2.delete_vpc(VpcId=region.vpc)
    assert machines.ranges == []
    assert region.ec2.describe_vpcs()["Vpcs"] == []


def test_a_range_that_the_lab_cannot_have(region: World) -> None:
    with refused(
        "InvalidVpc.Range",
        "VPC range 10.213.0.0/16 overlaps the lab's 10.213.0.0/16; take another range",
    ):
        region.ec2.create_vpc(CidrBlock="10.213.0.0/16")
    assert len(region.ec2.describe_vpcs()["Vpcs"]) == 1


def test_there_is_no_default_vpc(region: World) -> None:
    with refused("VPCIdNotSpecified", "No default VPC for this user"):
        region.ec2.run_instances(
            ImageId=region.image, InstanceType="t3.small", MinCount=1, MaxCount=1
        )


def test_a_subnet_is_not_public_by_itself(region: World) -> None:
    (subnet,) = region.ec2.describe_subnets(SubnetIds=[region.subnet])["Subnets"]
    assert subnet["MapPublicIpOnLaunch"] is False
    assert subnet["DefaultForAz"] is False


def test_nothing_goes_before_what_needs_it(region: World) -> None:
    (instance,) = region.run()
    with refused(
        "DependencyViolation",
        f"The subnet '{region.subnet}' has dependencies and cannot be deleted.",
    ):
        region.ec2.delete_subnet(SubnetId=region.subnet)
    with refused("DependencyViolation", f"resource {region.group} has a dependent object"):
        region.ec2.delete_security_group(GroupId=region.group)
    region.ec2.terminate_instances(InstanceIds=[instance])
    region.ec2.delete_subnet(SubnetId=region.subnet)
    with refused(
        "DependencyViolation", f"The vpc '{region.vpc}' has dependencies and cannot be deleted."
    ):
        region.ec2.delete_vpc(VpcId=region.vpc)
    region.ec2.delete_security_group(GroupId=region.group)
    region.ec2.delete_vpc(VpcId=region.vpc)


def test_a_security_group_may_name_itself(region: World) -> None:
    region.ec2.authorize_security_group_ingress(
        GroupId=region.group,
        IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": region.group}]}],
    )
    region.ec2.delete_security_group(GroupId=region.group)


def test_an_elastic_ip_reaches_its_machine(region: World, machines: Ranges) -> None:
    address = region.ec2.allocate_address(Domain="vpc")
    assert address["PublicIp"] == "198.18.0.1"
    (instance,) = region.run()
    with refused(
        "InvalidInstanceID",
        f"There are multiple interfaces attached to instance '{instance}'. Please specify an"
        " interface ID for the operation instead.",
    ):
        region.ec2.associate_address(AllocationId=address["AllocationId"], InstanceId=instance)
    primary = region.instance(instance)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    region.ec2.associate_address(AllocationId=address["AllocationId"], NetworkInterfaceId=primary)
    assert machines.public == ["198.18.0.1"]
    assert region.instance(instance)["PublicIpAddress"] == "198.18.0.1"
    with refused("InvalidIPAddress.InUse", "Address 198.18.0.1 is in use."):
        region.ec2.release_address(AllocationId=address["AllocationId"])
    (shown,) = region.ec2.describe_addresses()["Addresses"]
    region.ec2.disassociate_address(AssociationId=shown["AssociationId"])
    assert machines.public == []
    assert "PublicIpAddress" not in region.instance(instance)
    region.ec2.associate_address(AllocationId=address["AllocationId"], NetworkInterfaceId=primary)
    region.ec2.terminate_instances(InstanceIds=[instance])
    region.ec2.release_address(AllocationId=address["AllocationId"])
    assert region.ec2.describe_addresses()["Addresses"] == []
    assert region.ec2.allocate_address(Domain="vpc")["PublicIp"] == "198.18.0.2"


def test_a_nat_gateway_lives_in_its_subnet_and_is_found_by_tag(region: World) -> None:
    allocation = region.ec2.allocate_address(Domain="vpc")["AllocationId"]
    gateway = region.ec2.create_nat_gateway(
        SubnetId=region.subnet,
        AllocationId=allocation,
        TagSpecifications=[
            {"ResourceType": "natgateway", "Tags": [{"Key": "gpuctl:cluster", "Value": "demo"}]}
        ],
    )["NatGateway"]
    assert gateway["ConnectivityType"] == "public"
    assert gateway["NatGatewayAddresses"][0]["PrivateIp"] == "10.213.0.4"
    assert gateway["NatGatewayAddresses"][0]["PublicIp"] == "198.18.0.1"

    def found(value: str) -> list[str]:
        filters = [{"Name": "tag:gpuctl:cluster", "Values": [value]}]
        listed = region.ec2.describe_nat_gateways(Filters=filters)["NatGateways"]
        return [g["State"] for g in listed]

    assert found("demo") == ["available"]
    assert found("other") == []
    region.ec2.delete_nat_gateway(NatGatewayId=gateway["NatGatewayId"])
    assert found("demo") == ["deleted"]
    region.ec2.release_address(AllocationId=allocation)
    region.ec2.delete_subnet(SubnetId=region.subnet)


def test_a_gateway_stays_while_public_addresses_need_it(region: World) -> None:
    gateway = region.ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    region.ec2.attach_internet_gateway(InternetGatewayId=gateway, VpcId=region.vpc)
    primary = {
        "DeviceIndex": 0,
        "SubnetId": region.subnet,
        "AssociatePublicIpAddress": True,
    }
    (bastion,) = region.run(InstanceType="t3.small", NetworkInterfaces=[primary])
    with refused(
        "DependencyViolation",
        f"Network {region.vpc} has some mapped public address(es). Please unmap those public"
        " address(es) before detaching the gateway.",
    ):
        region.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=region.vpc)
    region.ec2.terminate_instances(InstanceIds=[bastion])
    region.ec2.detach_internet_gateway(InternetGatewayId=gateway, VpcId=region.vpc)
