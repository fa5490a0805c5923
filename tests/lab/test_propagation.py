"""The fault `consistency`: EC2 knows a new resource only after some seconds."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from botocore.exceptions import ClientError

from lab import fault_table
from tests.infra.region import PUBLIC_KEY
from tests.lab.world import World, world


@pytest.fixture
def faults(tmp_path: Path) -> Path:
    return tmp_path / "faults.json"


@pytest.fixture
def region(faults: Path) -> Iterator[World]:
    with world(faults=faults) as made:
        fault_table.write(faults, {"consistency": ["600"]})
        yield made


def code_of(ask: Callable[[], Any]) -> str:
    with pytest.raises(ClientError) as caught:
        ask()
    return str(caught.value.response["Error"]["Code"])


def known(faults: Path) -> None:
    """From now on EC2 knows everything."""
    faults.unlink()


def one_of_each(region: World, faults: Path) -> dict[str, str]:
    """A resource of each kind; EC2 knows none of them any more."""
    ec2 = region.ec2
    known(faults)
    gateway = ec2.create_internet_gateway()["InternetGateway"]["InternetGatewayId"]
    table = ec2.create_route_table(VpcId=region.vpc)["RouteTable"]["RouteTableId"]
    address = ec2.allocate_address(Domain="vpc")["AllocationId"]
    nat = ec2.create_nat_gateway(SubnetId=region.subnet, AllocationId=address)["NatGateway"]
    ec2.import_key_pair(KeyName="key", PublicKeyMaterial=PUBLIC_KEY.encode())
    ec2.create_placement_group(GroupName="near", Strategy="cluster")
    claim = ec2.create_capacity_reservation(
        InstanceType="p4d.24xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1a",
        InstanceCount=1,
    )["CapacityReservation"]["CapacityReservationId"]
    made = {"gateway": gateway, "table": table, "address": address, "nat": nat["NatGatewayId"]}
    made |= {"template": region.template(), "claim": claim}
    fault_table.write(faults, {"consistency": ["600"]})
    return made


def test_a_new_instance_is_unknown_and_runs_on(region: World, faults: Path) -> None:
    """AWS: a TerminateInstances that is refused in this way leaves the instance running."""
    known(faults)
    (old,) = region.run()
    fault_table.write(faults, {"consistency": ["600"]})
    # `old` is younger than 600 s too.
    assert code_of(lambda: region.ec2.describe_instances(InstanceIds=[old])) == (
        "InvalidInstanceID.NotFound"
    )
    assert code_of(lambda: region.ec2.terminate_instances(InstanceIds=[old])) == (
        "InvalidInstanceID.NotFound"
    )
    for filters in ([], [{"Name": "instance-id", "Values": [old]}]):
        assert region.ec2.describe_instances(Filters=filters)["Reservations"] == []
    assert region.ec2.describe_network_interfaces()["NetworkInterfaces"] == []
    assert region.ec2.describe_volumes()["Volumes"] == []
    known(faults)
    assert region.state(old) == "running"
    assert len(region.ec2.describe_network_interfaces()["NetworkInterfaces"]) == 5
    assert len(region.ec2.describe_volumes()["Volumes"]) == 1


def test_what_is_younger_than_the_delay_is_refused_by_the_code_of_its_kind(
    region: World, faults: Path
) -> None:
    ec2, made = region.ec2, one_of_each(region, faults)
    asked: dict[str, Callable[[], Any]] = {
        "InvalidVpcID.NotFound": lambda: ec2.create_subnet(
            VpcId=region.vpc, CidrBlock="10.213.32.0/24"
        ),
        "InvalidSubnetID.NotFound": lambda: ec2.describe_subnets(SubnetIds=[region.subnet]),
        "InvalidGroup.NotFound": lambda: ec2.describe_security_groups(GroupIds=[region.group]),
        "InvalidInternetGatewayID.NotFound": lambda: ec2.describe_internet_gateways(
            InternetGatewayIds=[made["gateway"]]
        ),
        "InvalidRouteTableID.NotFound": lambda: ec2.delete_route_table(RouteTableId=made["table"]),
        "InvalidAllocationID.NotFound": lambda: ec2.release_address(AllocationId=made["address"]),
        "NatGatewayNotFound": lambda: ec2.describe_nat_gateways(NatGatewayIds=[made["nat"]]),
        "InvalidKeyPair.NotFound": lambda: ec2.describe_key_pairs(KeyNames=["key"]),
        "InvalidPlacementGroup.Unknown": lambda: ec2.delete_placement_group(GroupName="near"),
        "InvalidLaunchTemplateId.NotFound": lambda: ec2.describe_launch_template_versions(
            LaunchTemplateId=made["template"]
        ),
        "InvalidCapacityReservationId.NotFound": lambda: ec2.cancel_capacity_reservation(
            CapacityReservationId=made["claim"]
        ),
    }
    assert {code: code_of(ask) for code, ask in asked.items()} == {code: code for code in asked}


def test_what_is_younger_than_the_delay_is_in_no_list(region: World, faults: Path) -> None:
    ec2 = region.ec2
    one_of_each(region, faults)
    listed = {
        "Vpcs": ec2.describe_vpcs,
        "Subnets": ec2.describe_subnets,
        "SecurityGroups": lambda: ec2.describe_security_groups(
            Filters=[{"Name": "group-name", "Values": ["nodes"]}]
        ),
        "InternetGateways": ec2.describe_internet_gateways,
        "Addresses": ec2.describe_addresses,
        "NatGateways": ec2.describe_nat_gateways,
        "KeyPairs": ec2.describe_key_pairs,
        "PlacementGroups": ec2.describe_placement_groups,
        "LaunchTemplates": ec2.describe_launch_templates,
        "CapacityReservations": ec2.describe_capacity_reservations,
    }
    assert {name: ask()[name] for name, ask in listed.items()} == {name: [] for name in listed}
    known(faults)
    assert all(len(ask()[name]) == 1 for name, ask in listed.items())


def test_a_second_creation_is_a_duplicate_all_the_same(region: World) -> None:
    region.ec2.create_placement_group(GroupName="near", Strategy="cluster")
    again = code_of(lambda: region.ec2.create_placement_group(GroupName="near", Strategy="spread"))
    assert again == "InvalidPlacementGroup.Duplicate"
