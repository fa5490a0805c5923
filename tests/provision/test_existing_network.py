"""A network that exists is looked at before anything is made, and chosen from."""

from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import ExistingNetwork, Resolved
from config.errors import GpuctlError, InputError
from config.target import Target
from lab import fault_table
from provision.aws.clients import client
from provision.billing.cost import access_prices
from provision.preflight.preflight import resolve
from provision.state import record
from provision.state.store import ClusterStore
from tests.infra.region import CREDENTIALS, child
from tests.infra.somebodys_network import SomebodysNetwork

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

pytestmark = pytest.mark.slow

A, B, C = "us-east-1a", "us-east-1b", "us-east-1c"
UNKNOWN_VPC, UNKNOWN_SUBNET = "vpc-0123456789abcdef0", "subnet-0123456789abcdef0"


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, Path]]:
    """A region's URL and the file of its faults; every test has a VPC of its own there."""
    table = tmp_path_factory.mktemp("region") / "faults.json"
    with child("lab.api", "--faults", str(table)) as (url, _):
        yield url, table


@pytest.fixture
def table(region: tuple[str, Path]) -> Iterator[Path]:
    yield region[1]
    region[1].unlink(missing_ok=True)


@pytest.fixture
def target(region: tuple[str, Path], tmp_path: Path) -> Target:
    return Target(
        name="test",
        region="us-east-1",
        state=tmp_path / "gpuctl",
        endpoint=region[0],
        environment=CREDENTIALS,
        caller_address="198.18.255.1",
    )


@pytest.fixture
def ec2(target: Target) -> "EC2Client":
    return client(target, "ec2")


@pytest.fixture
def theirs(ec2: "EC2Client") -> SomebodysNetwork:
    return SomebodysNetwork.make(ec2)


def cluster(network: dict[str, Any], **changes: Any) -> Cluster:
    fields = {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", "network": network}
    return Cluster.model_validate({**fields, **changes})


def complaints(target: Target, network: dict[str, Any], **changes: Any) -> list[str]:
    with pytest.raises(GpuctlError) as caught:
        resolve(cluster(network, **changes), ClusterStore(target))
    assert isinstance(caught.value, InputError)
    return str(caught.value).splitlines()


def remember(target: Target, resolved: Resolved) -> None:
    ClusterStore(target).write(record.new_record(resolved, datetime.now(UTC)))


def test_what_does_not_exist_is_told_with_all_else(target: Target) -> None:
    assert complaints(target, {"vpc": UNKNOWN_VPC}, storage={"root": {"gib": 50}}) == [
        "storage.root.gib: 50 is less than the 75 GiB of image dlami-ubuntu-24.04;"
        " set it to 75 or more",
        f"network.vpc: {UNKNOWN_VPC} does not exist in us-east-1, or this account may not use it;"
        " `aws ec2 describe-vpcs --region us-east-1` lists yours",
    ]
    assert complaints(target, {"subnet": UNKNOWN_SUBNET}) == [
        f"network.subnet: {UNKNOWN_SUBNET} does not exist in us-east-1, or this account may not use"
        " it; `aws ec2 describe-subnets --region us-east-1` lists yours"
    ]


def test_a_subnet_must_be_of_the_vpc(target: Target, theirs: SomebodysNetwork) -> None:
    subnet = theirs.subnet("10.40.0.0/24")
    other = SomebodysNetwork.make(theirs.ec2, "10.41.0.0/16")
    assert complaints(target, {"vpc": other.vpc, "subnet": subnet}) == [
        f"network.subnet: {subnet} is in {theirs.vpc}, not in network.vpc {other.vpc};"
        " leave network.vpc out, or name a subnet of it"
    ]


def test_a_subnet_implies_its_vpc_and_the_bastion_finds_its_own(
    target: Target, theirs: SomebodysNetwork
) -> None:
    public = theirs.public("10.40.0.0/28", B)
    nodes = theirs.private("10.40.1.0/24", theirs.nat(public), C)
    found = resolve(cluster({"subnet": nodes}), ClusterStore(target))
    assert found.existing_network == ExistingNetwork(
        vpc=theirs.vpc, subnets={C: nodes}, bastion_subnet=public
    )
    assert (found.zone, found.zones) == (C, (C,))
    assert access_prices(found) == (("bastion", 0.0208), ("1 public address", 0.005))


def test_a_vpc_gives_one_subnet_per_zone_with_the_most_free_addresses(
    target: Target, theirs: SomebodysNetwork
) -> None:
    nat = theirs.nat(public := theirs.public("10.40.0.0/28", A))
    theirs.private("10.40.1.0/28", nat, B)
    large = theirs.private("10.40.2.0/24", nat, B)
    other = theirs.private("10.40.3.0/24", nat, A)
    theirs.subnet("10.40.4.0/24", C)  # it leads nowhere
    theirs.private("10.40.5.0/24", nat, "us-east-1e")  # which does not offer p4d
    found = resolve(cluster({"vpc": theirs.vpc}), ClusterStore(target))
    assert found.zones == (A, B)
    assert found.existing_network == ExistingNetwork(
        vpc=theirs.vpc, subnets={A: other, B: large}, bastion_subnet=public
    )
    wished = resolve(
        cluster({"vpc": theirs.vpc}, capacity={"zones": (C, B, A)}), ClusterStore(target)
    )
    assert wished.zones == (B, A)


def test_nodes_with_their_own_addresses_need_a_public_subnet(
    target: Target, theirs: SomebodysNetwork
) -> None:
    public = theirs.public("10.40.0.0/24", B)
    private = theirs.private("10.40.1.0/24", theirs.nat(public), B)
    direct = {"access": "elastic-ip"}
    found = resolve(cluster({"vpc": theirs.vpc, **direct}), ClusterStore(target))
    assert found.existing_network == ExistingNetwork(vpc=theirs.vpc, subnets={B: public})
    assert complaints(target, {"subnet": private, **direct}) == [
        f"network.subnet: {private} must be one that has a default route to an internet gateway,"
        " because network.access is elastic-ip; route 0.0.0.0/0 to an internet gateway, name"
        " another subnet, or change access"
    ]


def test_everything_about_a_named_subnet_is_told_at_once(
    target: Target, theirs: SomebodysNetwork
) -> None:
    theirs.ec2.modify_vpc_attribute(VpcId=theirs.vpc, EnableDnsSupport={"Value": False})
    subnet = theirs.public("10.40.0.0/28", "us-east-1e")
    theirs.ec2.create_network_interface(SubnetId=subnet)
    assert complaints(target, {"subnet": subnet, "access": "private", "ssh_from": "10.0.0.0/16"},
                      nodes=20) == [
        f"network.vpc: {theirs.vpc} has no DNS support, so nodes could not resolve names;"
        f" `aws ec2 modify-vpc-attribute --vpc-id {theirs.vpc} --enable-dns-support`",
        f"network.subnet: {subnet} is in us-east-1e, which does not offer p4d.24xlarge; name a"
        " subnet in us-east-1a, us-east-1b, us-east-1c, us-east-1d",
        f"network.subnet: {subnet} must be one that has a default route out for machines without a"
        " public address (to a NAT gateway), because network.access is private; route 0.0.0.0/0 to"
        " a NAT gateway, or name another subnet",
        f"network.subnet: {subnet} has 10 free addresses, 20 nodes need 20; free some, name a"
        " larger subnet, or ask for fewer nodes",
    ]  # fmt: skip


def test_an_efs_needs_names_in_the_vpc(target: Target, theirs: SomebodysNetwork) -> None:
    nodes = theirs.private("10.40.1.0/24", theirs.nat(theirs.public("10.40.0.0/28")))
    with_efs = {"storage": {"shared": {"type": "efs"}}}
    assert complaints(target, {"subnet": nodes}, **with_efs) == [
        f"network.vpc: {theirs.vpc} has no DNS hostnames, so nodes could not find the EFS of"
        f" storage.shared; `aws ec2 modify-vpc-attribute --vpc-id {theirs.vpc}"
        " --enable-dns-hostnames`"
    ]
    theirs.ec2.modify_vpc_attribute(VpcId=theirs.vpc, EnableDnsHostnames={"Value": True})
    assert resolve(cluster({"subnet": nodes}, **with_efs), ClusterStore(target)).existing_network


def test_a_subnet_outside_the_zones_asked_for(target: Target, theirs: SomebodysNetwork) -> None:
    nat = theirs.nat(theirs.public("10.40.0.0/28"))
    subnet = theirs.private("10.40.1.0/24", nat, B)
    assert complaints(target, {"subnet": subnet}, capacity={"zones": (A, C)}) == [
        f"network.subnet: {subnet} is in us-east-1b, which is not in capacity.zones; name a subnet"
        " in us-east-1a, us-east-1c"
    ]
    made = theirs.ec2.create_capacity_reservation(
        InstanceType="p4d.24xlarge", InstancePlatform="Linux/UNIX", AvailabilityZone=C,
        InstanceCount=2,
    )["CapacityReservation"]["CapacityReservationId"]  # fmt: skip
    held = {"type": "reservation", "id": made}
    assert complaints(target, {"subnet": subnet}, capacity=held) == [
        f"network.subnet: {subnet} is in us-east-1b, and reservation {made} in us-east-1c; name a"
        " subnet in us-east-1c"
    ]
    assert complaints(target, {"vpc": theirs.vpc}, capacity=held) == [
        f"network.vpc: no subnet of {theirs.vpc} is in us-east-1c; create one there, or name"
        " another VPC"
    ]


def test_a_vpc_without_a_way_out_or_without_room(target: Target, theirs: SomebodysNetwork) -> None:
    nowhere = theirs.subnet("10.40.1.0/24")
    assert complaints(target, {"vpc": theirs.vpc}) == [
        f"network.vpc: no subnet of {theirs.vpc} has a default route out for machines without a"
        f" public address (to a NAT gateway) ({nowhere} have none); route 0.0.0.0/0 to a NAT"
        " gateway, or name another subnet",
        f"network.access is bastion, but {theirs.vpc} has no subnet for the bastion: a public one"
        " with a free address, in a zone that offers t3.small; use access: ssm, or access:"
        " private with your VPN or VPC peering",
    ]
    small = theirs.private("10.40.2.0/28", theirs.nat(theirs.public("10.40.3.0/28")))
    wide = {"vpc": theirs.vpc, "interfaces": "max-bandwidth"}
    assert complaints(target, wide, nodes=3) == [
        f"network.vpc: no subnet of {theirs.vpc} has 12 free addresses for 3 nodes: {small} has"
        " 11; free some, name a larger subnet, or ask for fewer nodes"
    ]


def test_a_route_to_what_is_gone_leads_nowhere(theirs: SomebodysNetwork) -> None:
    from provision.preflight.existing_network import _default_route

    def route(**target: str) -> Any:
        return {"Routes": [{"DestinationCidrBlock": "0.0.0.0/0", "State": "active", **target}]}

    assert _default_route(route(NatGatewayId="nat-0", State="blackhole")) == "none"
    assert _default_route(route(GatewayId="igw-0")) == "public"
    for way in ("NatGatewayId", "TransitGatewayId", "NetworkInterfaceId", "VpcPeeringConnectionId"):
        assert _default_route(route(**{way: "x-0"})) == "out"
    assert _default_route(route(GatewayId="vgw-0")) == "out"


def test_a_full_subnet_is_seen_before_the_launch(
    target: Target, theirs: SomebodysNetwork, table: Path
) -> None:
    nodes = theirs.private("10.40.1.0/24", theirs.nat(theirs.public("10.40.0.0/28")))
    fault_table.write(table, {"no-free-address": ()})
    assert complaints(target, {"subnet": nodes}) == [
        f"network.subnet: {nodes} has 0 free addresses, 2 nodes need 2; free some, name a larger"
        " subnet, or ask for fewer nodes",
        f"network.access is bastion, but {theirs.vpc} has no subnet for the bastion: a public one"
        " with a free address, in a zone that offers t3.small; use access: ssm, or access:"
        " private with your VPN or VPC peering",
    ]


def test_no_vpc_and_no_nat_address_are_counted(
    target: Target, theirs: SomebodysNetwork, table: Path
) -> None:
    nodes = theirs.private("10.40.1.0/24", theirs.nat(theirs.public("10.40.0.0/28")))
    used = {
        "vpc-limit": (str(len(theirs.ec2.describe_vpcs()["Vpcs"])),),
        "elastic-ip-limit": (str(len(theirs.ec2.describe_addresses()["Addresses"])),),
    }
    fault_table.write(table, used)
    assert resolve(cluster({"subnet": nodes}), ClusterStore(target)).zone == A
    own = complaints(target, {})
    assert [line.partition(":")[0] for line in own] == ["Elastic IP addresses", "VPCs"]


def test_a_cluster_keeps_its_network(target: Target, theirs: SomebodysNetwork) -> None:
    nat = theirs.nat(theirs.public("10.40.0.0/28", A))
    first = theirs.private("10.40.1.0/24", nat, A)
    second = theirs.private("10.40.2.0/24", nat, B)
    made = resolve(cluster({"vpc": theirs.vpc}), ClusterStore(target))
    remember(target, made.model_copy(update={"zone": B}))
    roomier = theirs.private("10.40.8.0/22", nat, B)

    again = resolve(cluster({"vpc": theirs.vpc}), ClusterStore(target))
    assert again.existing_network
    assert again.existing_network.subnets == {B: second}
    assert again.zones == (B,)
    assert (
        resolve(cluster({"subnet": second}), ClusterStore(target)).existing_network
        == again.existing_network
    )

    kept = f"cluster 'demo' was created in {second} of {theirs.vpc}, and cannot move"
    for network, what in (
        ({"vpc": UNKNOWN_VPC}, "vpc"),
        ({"subnet": roomier}, "subnet"),
        ({"subnet": first}, "subnet"),
        ({}, "vpc"),
    ):
        with pytest.raises(InputError) as caught:
            resolve(cluster(network), ClusterStore(target))
        first_line, *others = str(caught.value).splitlines()
        assert first_line == (
            f"network.{what}: {kept}; remove it first: `gpuctl down demo`"
        ), others  # fmt: skip


def test_a_cluster_with_a_vpc_of_its_own_keeps_it(target: Target, theirs: SomebodysNetwork) -> None:
    remember(target, resolve(cluster({}), ClusterStore(target)))
    nodes = theirs.private("10.40.1.0/24", theirs.nat(theirs.public("10.40.0.0/28")))
    with pytest.raises(InputError) as caught:
        resolve(cluster({"subnet": nodes}), ClusterStore(target))
    assert str(caught.value) == (
        "network.subnet: cluster 'demo' was created with its own VPC, and cannot move;"
        " remove it first: `gpuctl down demo`"
    )


def test_addresses_that_the_cluster_has_are_its_own(
    target: Target, theirs: SomebodysNetwork
) -> None:
    nodes = theirs.private("10.40.1.0/28", theirs.nat(theirs.public("10.40.0.0/28")))
    remember(target, resolve(cluster({"subnet": nodes}, nodes=10), ClusterStore(target)))
    image = theirs.ec2.describe_images()["Images"][0]["ImageId"]
    tags: Any = [{"Key": "gpuctl:cluster", "Value": "demo"}]
    theirs.ec2.run_instances(
        ImageId=image, InstanceType="p4d.24xlarge", SubnetId=nodes, MinCount=10, MaxCount=10,
        TagSpecifications=[{"ResourceType": "instance", "Tags": tags}],
    )  # fmt: skip
    assert resolve(cluster({"subnet": nodes}, nodes=11), ClusterStore(target)).cluster.nodes == 11
