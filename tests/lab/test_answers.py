"""What AWS's answers have and the lab's never have: each member with its reason.

A member that the real provider reads, and that the lab leaves out, looks like a change: Pulumi
would replace a file system whose `FileSystemTypeVersion` is missing. So every member of botocore's
output shapes that no answer has is in `unanswered.yaml`, below the reason.
"""

import json
import re
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest
import yaml

from provision.permissions.policy import boundary_document
from tests.infra.region import PUBLIC_KEY
from tests.lab.world import World, world

pytestmark = pytest.mark.slow

LIST = Path(__file__).parent / "unanswered.yaml"
REASONS = {"not ours", "not asked", "not read"}
TAGS: Any = [{"Key": "gpuctl:cluster", "Value": "demo"}]
TRUST = json.dumps({"Version": "2012-10-17", "Statement": []})


def tagged(kind: str) -> Any:
    return [{"ResourceType": kind, "Tags": TAGS}]


@pytest.fixture(scope="module")
def answers() -> Iterator[dict[str, list[Any]]]:
    """The answers of all questions that gpuctl and the provider ask, about one of everything."""
    with world() as here:
        names = fill(here)
        yield {
            f"{service}.{operation}": [ask(here, service, operation, names, **given)]
            for service, operation, given in questions(names)
        }


def fill(here: World) -> dict[str, str]:
    """Make one of each kind of resource that clusters have; return the ids that questions need."""
    ec2 = here.ec2
    ec2.import_key_pair(
        KeyName="demo", PublicKeyMaterial=PUBLIC_KEY.encode(), TagSpecifications=tagged("key-pair")
    )
    group = ec2.create_placement_group(
        GroupName="demo", Strategy="cluster", TagSpecifications=tagged("placement-group")
    )["PlacementGroup"]["GroupArn"]
    gateway = ec2.create_internet_gateway(TagSpecifications=tagged("internet-gateway"))
    internet = gateway["InternetGateway"]["InternetGatewayId"]
    ec2.attach_internet_gateway(InternetGatewayId=internet, VpcId=here.vpc)
    table = ec2.create_route_table(VpcId=here.vpc, TagSpecifications=tagged("route-table"))
    routes = table["RouteTable"]["RouteTableId"]
    ec2.create_route(RouteTableId=routes, DestinationCidrBlock="0.0.0.0/0", GatewayId=internet)
    ec2.associate_route_table(RouteTableId=routes, SubnetId=here.subnet)
    address = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    nat = ec2.create_nat_gateway(
        SubnetId=here.subnet,
        AllocationId=address["AllocationId"],
        TagSpecifications=tagged("natgateway"),
    )["NatGateway"]["NatGatewayId"]
    ec2.create_route(RouteTableId=routes, DestinationCidrBlock="10.0.0.0/8", NatGatewayId=nat)
    profile(here)
    template = here.template(**launch_data(here))
    ec2.create_tags(Resources=[template], Tags=TAGS)
    [node] = here.run(LaunchTemplate={"LaunchTemplateId": template})
    spot_options = {"MarketType": "spot"}
    requests = tagged("spot-instances-request")
    [spot] = here.run(InstanceMarketOptions=spot_options, TagSpecifications=requests)
    [small] = here.run(InstanceType="t3.small", SubnetId=here.subnet, ImageId=here.image)
    elastic = ec2.allocate_address(Domain="vpc", TagSpecifications=tagged("elastic-ip"))
    nic = here.instance(node)["NetworkInterfaces"][0]["NetworkInterfaceId"]
    ec2.associate_address(AllocationId=elastic["AllocationId"], NetworkInterfaceId=nic)
    ec2.authorize_security_group_ingress(
        GroupId=here.group,
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": 22,
                "ToPort": 22,
                "IpRanges": [{"CidrIp": "198.51.100.0/24", "Description": "ssh"}],
                "UserIdGroupPairs": [{"GroupId": here.group, "Description": "nodes"}],
            }
        ],
    )
    ec2.create_tags(Resources=[here.vpc, here.subnet, here.group], Tags=TAGS)
    ec2.create_capacity_reservation(
        EndDateType="limited",
        EndDate=datetime.now(UTC) + timedelta(minutes=20),
        InstanceType="p4d.24xlarge",
        InstancePlatform="Linux/UNIX",
        AvailabilityZone="us-east-1a",
        InstanceCount=1,
        PlacementGroupArn=group,
        TagSpecifications=tagged("capacity-reservation"),
    )
    return {
        "node": node, "small": small, "template": template, "address": elastic["AllocationId"],
        "spot": here.instance(spot)["SpotInstanceRequestId"], **files(here),
    }  # fmt: skip


def launch_data(here: World) -> dict[str, Any]:
    """The template of nodes, as gpuctl's program has it."""
    image = here.ec2.describe_images(ImageIds=[here.image])["Images"][0]
    for interface in (layout := here.p4d()):
        interface |= {"AssociatePublicIpAddress": False, "DeleteOnTermination": True}
    kinds = ("instance", "volume", "network-interface")
    root = {"VolumeSize": 200, "VolumeType": "gp3", "Encrypted": True, "DeleteOnTermination": True}
    return {
        "KeyName": "demo",
        "NetworkInterfaces": layout,
        "BlockDeviceMappings": [{"DeviceName": image["RootDeviceName"], "Ebs": root}],
        "IamInstanceProfile": {"Name": "demo"},
        "InstanceInitiatedShutdownBehavior": "terminate",
        "Placement": {"GroupName": "demo"},
        "MetadataOptions": {"HttpTokens": "required", "HttpEndpoint": "enabled"},
        "TagSpecifications": [one for kind in kinds for one in tagged(kind)],
    }


def boundary_text() -> str:
    return json.dumps(boundary_document())


def profile(here: World) -> None:
    iam = here.client("iam")
    iam.create_role(RoleName="demo", AssumeRolePolicyDocument=TRUST, Tags=TAGS, Description="nodes")
    iam.put_role_policy(RoleName="demo", PolicyName="session", PolicyDocument=boundary_text())
    iam.create_instance_profile(InstanceProfileName="demo", Tags=TAGS)
    iam.add_role_to_instance_profile(InstanceProfileName="demo", RoleName="demo")


def files(here: World) -> dict[str, str]:
    efs, fsx = here.client("efs"), here.client("fsx")
    shared = efs.create_file_system(CreationToken="demo", Encrypted=True, Tags=TAGS)["FileSystemId"]
    target = efs.create_mount_target(
        FileSystemId=shared, SubnetId=here.subnet, SecurityGroups=[here.group]
    )
    fsx.create_file_system(
        FileSystemType="LUSTRE",
        FileSystemTypeVersion="2.15",
        StorageCapacity=1200,
        SubnetIds=[here.subnet],
        SecurityGroupIds=[here.group],
        LustreConfiguration={"DeploymentType": "PERSISTENT_2", "PerUnitStorageThroughput": 125},
        Tags=TAGS,
    )
    return {"files": shared, "target": target["MountTargetId"]}


def questions(names: Mapping[str, str]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    """The service, the operation and the parameters of each question."""
    lists = (
        "addresses capacity_reservations instances internet_gateways key_pairs launch_templates"
        " nat_gateways network_interfaces placement_groups route_tables security_groups"
        " spot_instance_requests subnets tags volumes vpcs network_acls"
    )
    for name in lists.split():
        yield "ec2", f"describe_{name}", {}
    node = {"InstanceId": names["node"]}
    for attribute in (
        *("userData", "disableApiTermination", "disableApiStop"),
        "instanceInitiatedShutdownBehavior",
    ):
        yield "ec2", "describe_instance_attribute", {**node, "Attribute": attribute}
    versions = {"LaunchTemplateId": names["template"]}
    yield "ec2", "describe_launch_template_versions", versions
    yield "ec2", "describe_instance_types", {"InstanceTypes": ["p4d.24xlarge"]}
    yield "ec2", "describe_images", {"Owners": ["amazon"]}
    small = {"InstanceIds": [names["small"]]}
    yield "ec2", "describe_instance_credit_specifications", small
    yield "efs", "describe_file_systems", {}
    yield "efs", "describe_mount_targets", {"FileSystemId": names["files"]}
    yield "efs", "describe_lifecycle_configuration", {"FileSystemId": names["files"]}
    target = {"MountTargetId": names["target"]}
    yield "efs", "describe_mount_target_security_groups", target
    yield "fsx", "describe_file_systems", {}
    yield "iam", "get_role", {"RoleName": "demo"}
    yield "iam", "get_instance_profile", {"InstanceProfileName": "demo"}
    yield "iam", "get_role_policy", {"RoleName": "demo", "PolicyName": "session"}


def ask(here: World, service: str, operation: str, names: Any, **given: Any) -> Any:
    client = here.client(service)
    return client.meta.method_to_api_mapping[operation], getattr(client, operation)(**given), client


def missing(shape: Any, values: list[Any], path: str = "") -> Iterator[str]:
    """The members of a shape that none of the values has; within lists `[]`."""
    if shape.type_name == "structure":
        there = [one for one in values if isinstance(one, dict)]
        for name, member in shape.members.items():
            found = [one[name] for one in there if one.get(name) not in (None, [], {})]
            place = f"{path}.{name}" if path else name
            if there and not found:
                if name not in ("NextToken", "Marker", "NextMarker"):
                    yield place
            else:
                yield from missing(member, found, place)
    elif shape.type_name == "list":
        yield from missing(shape.member, [one for value in values for one in value], f"{path}[]")


@pytest.fixture(scope="module")
def unanswered(answers: Mapping[str, list[Any]]) -> dict[str, set[str]]:
    found: dict[str, set[str]] = {}
    by_operation: dict[tuple[str, str], list[Any]] = {}
    shapes = {}
    for key, asked in answers.items():
        service = key.partition(".")[0]
        for operation, answer, client in asked:
            by_operation.setdefault((service, operation), []).append(answer)
            shapes[service, operation] = client.meta.service_model.operation_model(operation)
    for (service, operation), given in by_operation.items():
        absent = set(missing(shapes[service, operation].output_shape, given))
        if absent:
            found[f"{service} {operation}"] = absent
    return found


def reasons() -> dict[str, dict[str, list[str]]]:
    """The patterns of members, by operation and reason."""
    table: dict[str, dict[str, list[str]]] = yaml.safe_load(LIST.read_text())
    return table


def fits(pattern: str, member: str) -> bool:
    return re.fullmatch(re.escape(pattern).replace(r"\*", ".*"), member) is not None


def test_each_member_that_the_lab_leaves_out_has_its_reason(
    unanswered: dict[str, set[str]],
) -> None:
    table = reasons()
    common = [one for found in table.pop("every operation").values() for one in found]
    own = {
        operation: [one for found in patterns.values() for one in found]
        for operation, patterns in table.items()
    }
    without = {
        (operation, member)
        for operation, members in unanswered.items()
        for member in members
        if not any(fits(one, member) for one in (*common, *own.get(operation, ())))
    }
    assert without == set()
    answered = {
        (operation, one)
        for operation, patterns in own.items()
        for one in patterns
        if not any(fits(one, member) for member in unanswered.get(operation, ()))
    }
    everything = {member for members in unanswered.values() for member in members}
    answered |= {("", one) for one in common if not any(fits(one, each) for each in everything)}
    assert answered == set()


def test_the_reasons_are_those_that_are_described() -> None:
    assert {reason for found in reasons().values() for reason in found} == REASONS
