"""Every layout, and every way in, against the engine, the lab's provider and its API."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pulumi
import pulumi_aws
import pytest
from pulumi import automation

from config.catalogue.instance_types import catalogue
from config.cluster.resolved import ExistingNetwork, Resolved
from infra.fleet import NO_CLAIMS
from infra.program.instances import launch_template, nodes
from infra.program.interface_layout import interfaces
from infra.program.security_groups import access
from infra.program.tags import Named
from infra.program.vpc import network
from infra.stack.engine_command import EngineCommand
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from infra.stack.workspace import PROJECT, workspace_options
from tests import golden
from tests.infra.region import (
    Region,
    administrator,
    client,
    create_boundary,
    instance_type,
    resolved,
)
from tests.infra.somebodys_network import SomebodysNetwork
from tests.labs import KEY

pytestmark = pytest.mark.thorough

GOLDEN = Path(__file__).parent / "golden"
TYPES = sorted(catalogue())
NOWHERE = {"trn2.3xlarge", "trn2.48xlarge"}
"""Types that moto's copy of DescribeInstanceTypeOfferings has in no zone of us-west-2."""


def _text(name: str, use: Any) -> str:
    """`0.0 interface, 0.1 efa-only, …`: card, device and type of every interface."""
    layout = interfaces(instance_type(name), "auto", use)
    return ", ".join(f"{i.card}.{i.device} {i.type}" for i in layout)


def layouts() -> str:
    """The golden file: every type with EFA in both ways."""
    lines = []
    for name in TYPES:
        save, most = _text(name, "save-addresses"), _text(name, "max-bandwidth")
        lines.append(f"{name}\n  save-addresses: {save}\n")
        lines.append(
            "  max-bandwidth: the same\n" if most == save else f"  max-bandwidth: {most}\n"
        )
    return "".join(lines)


def test_the_layout_of_every_type_with_efa() -> None:
    assert len(TYPES) == 40  # 37 with GPUs, 4 with Trainium
    golden.check(GOLDEN / "layouts.txt", layouts())


@pytest.mark.parametrize(
    ("name", "cards"),
    [
        ("p5.48xlarge", [0, *range(4, 32, 4)]),
        ("p5e.48xlarge", [0, *range(4, 32, 4)]),
        ("p6-b200.48xlarge", list(range(8))),
        ("p6-b300.48xlarge", list(range(17))),
        ("g5.8xlarge", [0]),
    ],
)
def test_max_bandwidth_has_addresses_where_aws_says(name: str, cards: list[int]) -> None:
    layout = interfaces(instance_type(name), "auto", "max-bandwidth")
    assert [i.card for i in layout if i.type == "interface"] == cards
    efa = [i for i in layout if i.type == "efa-only"]
    assert efa == [i for i in interfaces(instance_type(name), "auto") if i.type == "efa-only"]


@pytest.fixture
def stack(here: Region, engine: Engine) -> Stack:
    return Stack("demo", here.target, engine)


def _fleet_of_all(everything: list[Resolved]) -> None:
    """A Pulumi program: a network in each zone, and two nodes of every type in one of them."""

    class Apart(Named):
        """Resources of one cluster among those of others in one stack."""

        def options(self, *arguments: Any, **keywords: Any) -> pulumi.ResourceOptions:
            kind = f"test:{self.resolved.cluster.name}:cluster"
            if kind not in parents:
                parents[kind] = pulumi.ComponentResource(kind, "cluster")
            own = super().options(*arguments, **keywords)
            return pulumi.ResourceOptions.merge(
                own, pulumi.ResourceOptions(parent=parents[kind], provider=aws)
            )

    parents: dict[str, pulumi.ComponentResource] = {}
    aws = pulumi_aws.Provider("aws", region=everything[0].region)
    places: dict[str, Any] = {}
    for one in everything:
        if one.zone not in places:
            named = Apart(one, aws)
            net = network(named)
            places[one.zone] = net, access(net, named)
        net, who = places[one.zone]
        named = Apart(one, aws)
        nodes(net, launch_template(net, who, named), named, NO_CLAIMS)


@pytest.mark.engine
def test_every_layout_for_bandwidth_is_accepted(here: Region, engine: Engine) -> None:
    """In us-west-2, the region that has the most types, each in a zone that offers it.

    The layouts that save addresses are made by tests/plans.
    """
    target = replace(here.target, region="us-west-2")
    pages = client(target).get_paginator("describe_instance_type_offerings")
    zones: dict[str, str] = {}
    for page in pages.paginate(LocationType="availability-zone"):
        for offer in page["InstanceTypeOfferings"]:
            name = str(offer["InstanceType"])
            zones[name] = min(zones.get(name, "z"), offer["Location"])
    everything = [
        resolved(
            target,
            name=name.replace(".", "-"),
            instance_type=name,
            network={"interfaces": "max-bandwidth"},
            placement={"strategy": "none"},
        ).model_copy(update={"zone": zones[name]})
        for name in sorted(zones.keys() & set(TYPES))
    ]
    assert set(TYPES) - zones.keys() == NOWHERE
    automation.create_stack(
        "types",
        project_name=PROJECT,
        program=lambda: _fleet_of_all(everything),
        opts=workspace_options("types", target, EngineCommand(engine)),
    ).up(parallel=64)
    found: dict[str, list[set[tuple[int, int, str]]]] = {}
    for told in client(target).get_paginator("describe_instances").paginate():
        for reservation in told["Reservations"]:
            for instance in reservation["Instances"]:
                found.setdefault(str(instance["InstanceType"]), []).append(
                    {
                        (
                            i["Attachment"].get("NetworkCardIndex", 0),
                            i["Attachment"]["DeviceIndex"],
                            i["InterfaceType"],
                        )
                        for i in instance["NetworkInterfaces"]
                    }
                )
    assert found == {
        one.instance_type.name: [{(i.card, i.device, i.type) for i in one.interfaces}] * 2
        for one in everything
    }


def _plan(stack: Stack, wanted: Resolved) -> str:
    changes = sorted((c.type, c.name, c.op) for c in stack.preview(wanted).changes)
    return "".join(f"{op} {kind} {name}\n" for kind, name, op in changes)


def _roles(here: Region) -> list[str]:
    """The names of all roles and instance profiles."""
    iam = boto3.client(
        "iam",
        endpoint_url=here.target.endpoint,
        region_name="us-east-1",
        aws_access_key_id=KEY.key_id,
        aws_secret_access_key=KEY.secret,
    )
    roles = [r["RoleName"] for r in iam.list_roles()["Roles"] if r["Path"].startswith("/gpuctl/")]
    profiles = iam.list_instance_profiles()["InstanceProfiles"]
    return roles + [p["InstanceProfileName"] for p in profiles]


@pytest.mark.engine
@pytest.mark.parametrize("access", ["bastion", "elastic-ip", "private", "ssm"])
def test_each_way_in_is_planned_made_and_removed(here: Region, stack: Stack, access: str) -> None:
    wanted = resolved(here.target, network={"access": access, "ssh_from": "198.18.255.1/32"})
    golden.check(GOLDEN / f"plan-{access}.txt", _plan(stack, wanted))
    fleet = stack.up(wanted)
    assert stack.preview(wanted).is_empty
    ec2 = client(here.target)
    groups = {g["GroupName"]: g for g in ec2.describe_security_groups()["SecurityGroups"]}
    ssh = [p for p in groups["gpuctl-demo-nodes"]["IpPermissions"] if p.get("FromPort") == 22]
    addresses = ec2.describe_addresses()["Addresses"]
    gateways = ec2.describe_nat_gateways()["NatGateways"]
    if access == "bastion":
        assert fleet.bastion_address
        assert [p["IpRanges"] for p in ssh] == [[]]
    else:
        assert (fleet.bastion_id, fleet.bastion_address) == ("", "")
        assert "gpuctl-demo-bastion" not in groups
        open_to = [r["CidrIp"] for p in ssh for r in p["IpRanges"]]
        assert open_to == ([] if access == "ssm" else ["198.18.255.1/32"])
    assert _roles(here) == (["gpuctl-us-east-1-demo"] * 2 if access == "ssm" else [])
    if access == "elastic-ip":
        assert gateways == []
        given = {a["InstanceId"]: a["PublicIp"] for a in addresses}
        assert given == {node.instance_id: node.public_ip for node in fleet.nodes}
    else:
        assert len(gateways) == 1
        assert [node.public_ip for node in fleet.nodes] == ["", ""]
    stack.destroy()
    assert _roles(here) == []
    assert ec2.describe_addresses()["Addresses"] == []
    assert ec2.describe_vpcs()["Vpcs"] == []


@pytest.mark.engine
def test_the_nodes_role_gets_the_accounts_boundary(here: Region, stack: Stack) -> None:
    unbounded = resolved(here.target, network={"access": "ssm"})
    stack.up(unbounded)
    iam = administrator(here.target, "iam")
    assert "PermissionsBoundary" not in iam.get_role(RoleName="gpuctl-us-east-1-demo")["Role"]
    # The account gets its boundary later: the role follows, and no node is replaced.
    bounded = unbounded.model_copy(update={"boundary": create_boundary(here.target)})
    changes = [(c.name, c.op) for c in stack.preview(bounded).changes if c.op != "same"]
    assert changes == [("nodes", "update")]
    stack.up(bounded)
    assert stack.preview(bounded).is_empty
    role = iam.get_role(RoleName="gpuctl-us-east-1-demo")["Role"]
    assert role["PermissionsBoundary"]["PermissionsBoundaryArn"] == bounded.boundary
    stack.destroy()
    assert _roles(here) == []


@pytest.mark.engine
def test_nodes_get_an_administrators_profile_and_gpuctl_makes_no_role(
    here: Region, stack: Stack
) -> None:
    iam = administrator(here.target, "iam")
    iam.create_instance_profile(InstanceProfileName="trainers")
    wanted = resolved(here.target, network={"access": "ssm"}, instance_profile="trainers")
    fleet = stack.up(wanted)
    assert _roles(here) == ["trainers"]
    described = client(here.target).describe_instances(InstanceIds=[fleet.nodes[0].instance_id])
    profile = described["Reservations"][0]["Instances"][0]["IamInstanceProfile"]
    assert profile["Arn"].endswith(":instance-profile/trainers")
    stack.destroy()
    assert _roles(here) == ["trainers"]


@pytest.mark.engine
@pytest.mark.parametrize("access", ["bastion", "elastic-ip", "private"])
def test_a_network_that_exists_is_used_and_left_as_it_was(
    here: Region, stack: Stack, access: str
) -> None:
    theirs = SomebodysNetwork.make(client(here.target))
    public = theirs.public("10.40.0.0/24", "us-east-1b")
    private = theirs.private("10.40.1.0/24", theirs.nat(public), "us-east-1a")
    before = theirs.all
    nodes, zone = (public, "us-east-1b") if access == "elastic-ip" else (private, "us-east-1a")
    network = {"access": access, "vpc": theirs.vpc, "ssh_from": "198.18.255.1/32"}
    existing = ExistingNetwork(
        vpc=theirs.vpc,
        subnets={"us-east-1d": "subnet-of-no-interest", zone: nodes},
        bastion_subnet=public if access == "bastion" else "",
    )
    wanted = resolved(here.target, network=network).model_copy(
        update={"existing_network": existing, "zone": zone}
    )
    golden.check(GOLDEN / f"plan-existing-{access}.txt", _plan(stack, wanted))
    fleet = stack.up(wanted)
    assert (fleet.vpc_id, fleet.subnet_id) == (theirs.vpc, nodes)
    assert stack.preview(wanted).is_empty
    instances = {
        one["InstanceId"]: one["SubnetId"]
        for told in client(here.target).describe_instances()["Reservations"]
        for one in told["Instances"]
    }
    bastion = {fleet.bastion_id: public} if access == "bastion" else {}
    assert instances == {**dict.fromkeys([n.instance_id for n in fleet.nodes], nodes), **bastion}
    stack.destroy()
    assert theirs.all == before


@pytest.mark.engine
def test_a_node_that_is_made_again_keeps_its_address(here: Region, stack: Stack) -> None:
    wanted = resolved(here.target, network={"access": "elastic-ip"})
    before = stack.up(wanted)
    client(here.target).terminate_instances(InstanceIds=[before.nodes[1].instance_id])
    after = stack.up(wanted)
    assert after.nodes[1].instance_id != before.nodes[1].instance_id
    assert [n.public_ip for n in after.nodes] == [n.public_ip for n in before.nodes]
    assert stack.preview(wanted).is_empty
