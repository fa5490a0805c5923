"""What carries a cluster's tag is found, told and removed, and nothing else is."""

import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

import pytest
from botocore.exceptions import ClientError

from config.catalogue.iam_actions import POLICY
from config.errors import InputError
from config.progress import Progress, silent
from config.target import Target
from provision.aws.clients import client
from provision.aws.guardduty import ENDPOINT, GROUP
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.aws.resources import KINDS, find_all
from provision.removal.sweep import sweep
from provision.state import record
from provision.state.store import ClusterStore
from provision.status import clusters
from tests.aws_calls import Answer, ApiCall
from tests.provision.test_record import a_record

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

pytestmark = pytest.mark.slow


MADE = set(KINDS) - {ENDPOINT, GROUP}
"""What GuardDuty makes is in test_guardduty."""


def claim_problem(ec2: "EC2Client") -> str:
    """What status says about the reservation of the cluster demo, which has an end."""
    claims = ec2.describe_capacity_reservations()["CapacityReservations"]
    mine = {"Key": "gpuctl:cluster", "Value": "demo"}
    (left,) = [one for one in claims if one["State"] == "active" and mine in one["Tags"]]
    return (
        f"{left['CapacityReservationId']} reserves 2 x p4d.24xlarge, which bill until it ends by"
        " itself, at the latest at 11:30 UTC; `gpuctl down demo` cancels it at once"
    )


def tagged(kind: str, cluster: str, name: str = "") -> list[Any]:
    tags = [{"Key": "gpuctl:cluster", "Value": cluster}, {"Key": "Name", "Value": name or cluster}]
    return [{"ResourceType": kind, "Tags": tags}]


def make_cluster(ec2: "EC2Client", ami: str, name: str, nodes: Sequence[str] = ("node0",)) -> str:
    """One of every kind that a cluster has, tangled as it has them; returns the VPC's id."""
    vpc = ec2.create_vpc(CidrBlock="10.213.0.0/16", TagSpecifications=tagged("vpc", name))
    vpc_id = vpc["Vpc"]["VpcId"]
    subnet = ec2.create_subnet(
        VpcId=vpc_id,
        CidrBlock="10.213.0.0/24",
        AvailabilityZone=f"{ec2.meta.region_name}a",
        TagSpecifications=tagged("subnet", name),
    )["Subnet"]["SubnetId"]
    make_routes(ec2, vpc_id, subnet, name)
    groups = make_groups(ec2, vpc_id, name)
    ec2.create_key_pair(KeyName=f"gpuctl-{name}", TagSpecifications=tagged("key-pair", name))
    ec2.create_placement_group(
        GroupName=f"gpuctl-{name}",
        Strategy="cluster",
        TagSpecifications=tagged("placement-group", name),
    )
    ec2.create_launch_template(
        LaunchTemplateName=f"gpuctl-{name}",
        LaunchTemplateData={"InstanceType": "p4d.24xlarge"},
        TagSpecifications=tagged("launch-template", name),
    )
    make_unused(ec2, subnet, name)
    ec2.create_capacity_reservation(
        InstanceType="p4d.24xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone=f"{ec2.meta.region_name}a",
        InstanceCount=2,
        InstanceMatchCriteria="targeted",
        EndDateType="limited",
        EndDate=datetime(2099, 11, 20, 10, 30, tzinfo=UTC),
        TagSpecifications=tagged("capacity-reservation", name),
    )
    for node in nodes:
        ec2.run_instances(
            ImageId=ami,
            InstanceType="p4d.24xlarge",
            MinCount=1,
            MaxCount=1,
            SubnetId=subnet,
            SecurityGroupIds=groups[:1],
            TagSpecifications=tagged("instance", name, f"{name}-{node}"),
        )
    return vpc_id


def make_unused(ec2: "EC2Client", subnet: str, name: str) -> None:
    """Make an interface and a volume that no instance has."""
    ec2.create_network_interface(
        SubnetId=subnet, TagSpecifications=tagged("network-interface", name)
    )
    ec2.create_volume(
        AvailabilityZone=f"{ec2.meta.region_name}a",
        Size=100,
        VolumeType="gp3",
        TagSpecifications=tagged("volume", name),
    )


def make_routes(ec2: "EC2Client", vpc_id: str, subnet: str, name: str) -> None:
    """Make the ways out: gateways, an address and the subnet's table."""
    gateway = ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway", name))
    ec2.attach_internet_gateway(
        InternetGatewayId=gateway["InternetGateway"]["InternetGatewayId"], VpcId=vpc_id
    )
    table = ec2.create_route_table(VpcId=vpc_id, TagSpecifications=tagged("route-table", name))
    ec2.associate_route_table(RouteTableId=table["RouteTable"]["RouteTableId"], SubnetId=subnet)
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip", name))[
        "AllocationId"
    ]
    ec2.create_nat_gateway(
        SubnetId=subnet, AllocationId=address, TagSpecifications=tagged("natgateway", name)
    )


def make_groups(ec2: "EC2Client", vpc_id: str, name: str) -> list[str]:
    """Return the ids of the bastion's security group and of the nodes'; each lets the other in."""
    groups = [
        ec2.create_security_group(
            GroupName=f"{name}-{part}",
            Description=part,
            VpcId=vpc_id,
            TagSpecifications=tagged("security-group", name),
        )["GroupId"]
        for part in ("bastion", "nodes")
    ]
    for one, other in (groups, groups[::-1]):
        ec2.authorize_security_group_ingress(
            GroupId=one,
            IpPermissions=[{"IpProtocol": "-1", "UserIdGroupPairs": [{"GroupId": other}]}],
        )
    return groups


def make_file_systems(target: Target, name: str) -> tuple[str, str]:
    """One of each kind in the cluster's subnet, and with its interfaces in its security group."""
    here = client(target, "ec2")
    mine: Any = [{"Name": "tag:gpuctl:cluster", "Values": [name]}]
    subnet = here.describe_subnets(Filters=mine)["Subnets"][0]["SubnetId"]
    group = here.describe_security_groups(Filters=mine)["SecurityGroups"][0]["GroupId"]
    tags = tagged("", name)[0]["Tags"]
    efs, fsx = client(target, "efs"), client(target, "fsx")
    files = efs.create_file_system(CreationToken=name, Encrypted=True, Tags=tags)["FileSystemId"]
    efs.create_mount_target(FileSystemId=files, SubnetId=subnet, SecurityGroups=[group])
    lustre = fsx.create_file_system(
        FileSystemType="LUSTRE",
        StorageCapacity=1200,
        SubnetIds=[subnet],
        SecurityGroupIds=[group],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2"},
        Tags=tags,
    )["FileSystem"]["FileSystemId"]
    return files, lustre


def make_identity(target: Target, name: str) -> str:
    """A role that Session Manager asks for, in an instance profile of the same name."""
    iam, called = client(target, "iam"), f"gpuctl-{target.region}-{name}"
    path, tags = f"/gpuctl/{target.region}/", tagged("", name)[0]["Tags"]
    iam.create_role(RoleName=called, Path=path, AssumeRolePolicyDocument="{}", Tags=tags)
    iam.attach_role_policy(
        RoleName=called, PolicyArn="arn:aws:iam::aws:policy/AmazonSSMManagedInstanceCore"
    )
    iam.put_role_policy(
        RoleName=called, PolicyName="session-manager", PolicyDocument=json.dumps(POLICY)
    )
    iam.create_instance_profile(InstanceProfileName=called, Path=path, Tags=tags)
    iam.add_role_to_instance_profile(InstanceProfileName=called, RoleName=called)
    return called


@pytest.fixture
def ec2(empty_region: Target) -> "EC2Client":
    return client(empty_region, "ec2")


@pytest.fixture
def ami(empty_region: Target) -> str:
    return image_id(client(empty_region, "ssm"), BASTION_IMAGE)


def test_every_kind_is_found_and_removed_and_neighbours_stay(
    empty_region: Target, ec2: "EC2Client", ami: str
) -> None:
    make_cluster(ec2, ami, "demo")
    other = make_cluster(ec2, ami, "other")
    for name in ("demo", "other"):
        make_file_systems(empty_region, name)
        make_identity(empty_region, name)
    elsewhere = make_identity(replace(empty_region, region="us-west-2"), "demo")
    ec2.create_vpc(CidrBlock="10.1.0.0/16")
    assert {resource.kind for resource in find_all(empty_region, "demo")} == MADE
    others = find_all(empty_region, "other")
    reports: list[Progress] = []

    removed = sweep(empty_region, "demo", "", reports.append)

    assert [f"{left.kind} {left.id}" for left in find_all(empty_region, "demo")] == []
    assert {subject.rpartition(" ")[0] for subject in removed} == MADE
    assert {r.subject for r in reports if r.state == "done"} == set(removed)
    assert [r.id for r in find_all(empty_region, "other")] == [r.id for r in others]
    assert other in {r.id for r in others}
    assert len(ec2.describe_vpcs(Filters=[{"Name": "cidr", "Values": ["10.1.0.0/16"]}])["Vpcs"])
    assert sweep(empty_region, "demo", "", silent) == ()
    iam, kept = client(empty_region, "iam"), {elsewhere, "gpuctl-us-east-1-other"}
    roles = iam.list_roles(PathPrefix="/gpuctl/")["Roles"]
    assert {role["RoleName"] for role in roles} == kept
    profiles = iam.list_instance_profiles(PathPrefix="/gpuctl/")["InstanceProfiles"]
    assert {profile["InstanceProfileName"] for profile in profiles} == kept


def test_who_may_not_ask_for_file_systems_has_none(
    empty_region: Target,
    ec2: "EC2Client",
    ami: str,
    answer_calls: Callable[[Answer], None],
) -> None:
    make_cluster(ec2, ami, "demo")
    make_file_systems(empty_region, "demo")

    def denied(call: ApiCall) -> object:
        if call.operation == "DescribeFileSystems":
            raise ClientError({"Error": {"Code": "AccessDeniedException"}}, call.operation)
        return call.ask()

    answer_calls(denied)
    found = {resource.kind for resource in find_all(empty_region, "demo")}
    assert found == {noun for noun, kind in KINDS.items() if kind.service == "ec2"}


def test_status_tells_what_exists_without_a_record(
    empty_region: Target, ec2: "EC2Client", ami: str
) -> None:
    make_cluster(ec2, ami, "demo", nodes=("node1", "node0", "bastion"))
    files, lustre = make_file_systems(empty_region, "demo")
    (status,) = clusters(ClusterStore(empty_region))
    assert (status.name, status.region, status.state) == ("demo", "us-east-1", "orphaned")
    assert [(n.name, n.state) for n in status.nodes] == [("node0", "running"), ("node1", "running")]
    assert status.hourly_usd == pytest.approx(5 * 21.957642 + 0.045 + 0.005)  # 2 of the claim
    assert status.spent_usd is not None
    assert 0 < status.spent_usd < 10
    assert any(other.startswith("VPC vpc-") for other in status.others)
    assert {f"EFS file system {files}", f"FSx file system {lustre}"} <= set(status.others)
    assert status.problems == (
        "this machine has no record of it; `gpuctl down demo` removes it",
        claim_problem(ec2),
    )


def test_status_joins_records_with_what_exists(
    empty_region: Target, ec2: "EC2Client", ami: str
) -> None:
    earlier = make_cluster(ec2, ami, "demo", nodes=("node1", "node2"))
    sweep(empty_region, "demo", "", silent)
    ClusterStore(empty_region).write(a_record().now("ready"))
    assert make_cluster(ec2, ami, "demo", nodes=("node0", "node1", "bastion")) != earlier
    (status,) = clusters(ClusterStore(empty_region))
    assert (status.state, status.problems) == ("ready", (claim_problem(ec2),))
    node1 = status.nodes[1].instance_id

    ec2.terminate_instances(InstanceIds=[node1])
    ec2.get_waiter("instance_terminated").wait(
        InstanceIds=[node1], WaiterConfig={"Delay": 1, "MaxAttempts": 20}
    )
    (status,) = clusters(ClusterStore(empty_region))
    assert [n.state for n in status.nodes] == ["running", "terminated"]
    lost = "node1 is terminated; `gpuctl up` replaces it"
    assert status.problems == (lost, claim_problem(ec2))
    assert status.hourly_usd == pytest.approx(4 * 21.957642 + 0.045 + 0.005)


def test_status_tells_that_a_command_was_killed(
    empty_region: Target, ec2: "EC2Client", ami: str
) -> None:
    ClusterStore(empty_region).write(a_record())
    (status,) = clusters(ClusterStore(empty_region))
    assert (status.state, status.nodes) == ("gone", ())
    make_cluster(ec2, ami, "demo")
    (status,) = clusters(ClusterStore(empty_region))
    assert status.state == "failed"
    killed = "`gpuctl up` was killed; repeat it; `gpuctl down demo` removes it"
    assert status.problems == (killed, claim_problem(ec2))


def test_nothing_is_told_where_nothing_exists(empty_region: Target) -> None:
    assert clusters(ClusterStore(empty_region)) == ()


@pytest.mark.parametrize(
    ("known", "hint"),
    [((), "`gpuctl up FILE` creates one"), (("other", "another"), "there are: another, other")],
)
def test_a_cluster_that_nobody_knows_is_told_with_those_there_are(
    known: tuple[str, ...], hint: str
) -> None:
    error = record.unknown_cluster("demo", known)
    assert isinstance(error, InputError)
    assert (error.message, error.hint) == ("there is no cluster 'demo'", hint)


def test_an_ended_node_is_billed_until_its_end() -> None:
    from provision.aws.resources import Resource
    from provision.billing.cost import spent_usd

    told = {
        "InstanceType": "p4d.24xlarge",
        "LaunchTime": datetime(2026, 11, 20, 10, tzinfo=UTC),
        "StateTransitionReason": "User initiated (2026-11-20 11:30:00 GMT)",
    }
    now = datetime(2026, 11, 20, 20, tzinfo=UTC)
    ended = Resource("instance", "i-1", "demo", "demo-node0", "terminated", told)
    assert spent_usd([ended], now) == pytest.approx(1.5 * 21.957642)
    running = Resource("instance", "i-1", "demo", "demo-node0", "running", told)
    assert spent_usd([running], now) == pytest.approx(10 * 21.957642)
    unknown = Resource("instance", "i-1", "demo", "x", "running", {**told, "InstanceType": "z9"})
    assert spent_usd([running, unknown], now) is None
