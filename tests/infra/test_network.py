"""Every layout, and every way in, against the engine, the lab's provider and its API."""

import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pulumi import automation

from config.catalogue import catalogue
from config.resolved import Resolved
from infra.engine import Engine
from infra.layout import interfaces
from infra.stack import Stack
from infra.workspace import workspace
from tests.infra.region import Region, client, instance_type, resolved

GOLDEN = Path(__file__).parent / "golden"
GPU_TYPES = sorted(name for name, entry in catalogue().items() if entry.gpu.count)


def _text(name: str, use: Any) -> str:
    """`0.0 interface, 0.1 efa-only, …`: card, device and type of every interface."""
    layout = interfaces(instance_type(name), "auto", use)
    return ", ".join(f"{i.card}.{i.device} {i.type}" for i in layout)


def layouts() -> str:
    """The golden file: every GPU type in both ways."""
    lines = []
    for name in GPU_TYPES:
        save, most = _text(name, "save-addresses"), _text(name, "max-bandwidth")
        lines.append(f"{name}\n  save-addresses: {save}\n")
        lines.append(
            "  max-bandwidth: the same\n" if most == save else f"  max-bandwidth: {most}\n"
        )
    return "".join(lines)


def test_the_layout_of_every_gpu_type() -> None:
    assert len(GPU_TYPES) == 37
    assert layouts() == (GOLDEN / "layouts.txt").read_text()


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
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import pulumi
        import pulumi_aws

        from infra.access import access
        from infra.machines import nodes
        from infra.naming import Named
        from infra.network import network

    class Apart(Named):
        """Resources of one cluster among those of others in one stack."""

        def options(self, *arguments: Any, **keywords: Any) -> pulumi.ResourceOptions:
            kind = f"test:{self.resolved.cluster.name}:cluster"
            if kind not in parents:
                parents[kind] = pulumi.ComponentResource(kind, "cluster")
            own = super().options(*arguments, **keywords)
            return pulumi.ResourceOptions.merge(
                own, pulumi.ResourceOptions(parent=parents[kind], provider=provider)
            )

    parents: dict[str, pulumi.ComponentResource] = {}
    provider = pulumi_aws.Provider(
        "aws", region=everything[0].region, allowed_account_ids=["123456789012"]
    )
    places: dict[str, Any] = {}
    for one in everything:
        if one.zone not in places:
            named = Apart(one, provider)
            net = network(named)
            places[one.zone] = net, access(net, named)
        net, who = places[one.zone]
        nodes(net, who, Apart(one, provider))


@pytest.mark.engine
@pytest.mark.parametrize("use", ["save-addresses", "max-bandwidth"])
def test_every_layout_is_accepted(here: Region, engine: Engine, use: str) -> None:
    """In us-west-2, the region that has all of the types, each in a zone that offers it."""
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
            network={"interfaces": use},
            placement={"strategy": "none"},
        ).model_copy(update={"zone": zones[name]})
        for name in GPU_TYPES
    ]
    made = automation.Stack.create("types", workspace("types", target, engine))
    made.up(program=lambda: _fleet_of_all(everything), parallel=64)
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


@pytest.mark.engine
@pytest.mark.parametrize("access", ["bastion", "elastic-ip", "private"])
def test_each_way_in_is_planned_made_and_removed(here: Region, stack: Stack, access: str) -> None:
    wanted = resolved(here.target, network={"access": access, "ssh_from": "198.18.255.1/32"})
    assert _plan(stack, wanted) == (GOLDEN / f"plan-{access}.txt").read_text()
    fleet = stack.up(wanted)
    assert stack.preview(wanted).is_empty
    ec2 = client(here.target)
    groups = {g["GroupName"]: g for g in ec2.describe_security_groups()["SecurityGroups"]}
    [ssh] = [p for p in groups["gpuctl-demo-nodes"]["IpPermissions"] if p.get("FromPort") == 22]
    addresses = ec2.describe_addresses()["Addresses"]
    gateways = ec2.describe_nat_gateways()["NatGateways"]
    if access == "bastion":
        assert fleet.bastion_address
        assert ssh["IpRanges"] == []
    else:
        assert (fleet.bastion_id, fleet.bastion_address) == ("", "")
        assert "gpuctl-demo-bastion" not in groups
        assert [r["CidrIp"] for r in ssh["IpRanges"]] == ["198.18.255.1/32"]
    if access == "elastic-ip":
        assert gateways == []
        given = {a["InstanceId"]: a["PublicIp"] for a in addresses}
        assert given == {node.instance_id: node.public_ip for node in fleet.nodes}
    else:
        assert len(gateways) == 1
        assert [node.public_ip for node in fleet.nodes] == ["", ""]
    stack.destroy()
    assert ec2.describe_addresses()["Addresses"] == []
    assert ec2.describe_vpcs()["Vpcs"] == []


@pytest.mark.engine
def test_a_node_that_is_made_again_keeps_its_address(here: Region, stack: Stack) -> None:
    wanted = resolved(here.target, network={"access": "elastic-ip"})
    before = stack.up(wanted)
    client(here.target).terminate_instances(InstanceIds=[before.nodes[1].instance_id])
    after = stack.up(wanted)
    assert after.nodes[1].instance_id != before.nodes[1].instance_id
    assert [n.public_ip for n in after.nodes] == [n.public_ip for n in before.nodes]
    assert stack.preview(wanted).is_empty
