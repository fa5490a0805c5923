"""The driver and the program against the engine, the lab's provider and its API."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from config.cluster.resolved import Resolved
from config.errors import InfraError, InputError
from config.progress import Progress
from infra.stack.changes import Change, Plan
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from tests.infra.region import Region, client, resolved

pytestmark = pytest.mark.engine

TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
INSTANCE = "aws:ec2/instance:Instance"


@pytest.fixture
def stack(here: Region, engine: Engine) -> Stack:
    return Stack("demo", here.target, engine)


def changed(plan: Plan) -> set[Change]:
    return {change for change in plan.changes if change.op != "same"}


def demo(here: Region, **changes: Any) -> Resolved:
    return resolved(here.target, **changes)


def running(here: Region) -> list[Any]:
    """The instances that are not terminated."""
    alive = [{"Name": "instance-state-name", "Values": ["pending", "running", "stopped"]}]
    return list(client(here.target).describe_instances(Filters=alive)["Reservations"])  # type: ignore[arg-type]


def left(here: Region) -> list[Any]:
    """What exists in the region and costs or hinders."""
    ec2 = client(here.target)
    return [
        *running(here),
        *ec2.describe_vpcs()["Vpcs"],
        *ec2.describe_addresses()["Addresses"],
        *ec2.describe_network_interfaces()["NetworkInterfaces"],
        *ec2.describe_placement_groups()["PlacementGroups"],
        *ec2.describe_key_pairs()["KeyPairs"],
        *ec2.describe_launch_templates()["LaunchTemplates"],
        *[
            gateway
            for gateway in ec2.describe_nat_gateways()["NatGateways"]
            if gateway["State"] != "deleted"
        ],
    ]


def files(folder: Path) -> list[str]:
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


def test_a_cluster_from_nothing_to_nothing(here: Region, stack: Stack) -> None:
    wanted = demo(here)
    assert not stack.exists()

    plan = stack.preview(wanted)
    assert plan.counts == {"create": 18}
    # nothing in the backend is written other than whole (infra.workspace.backend_url)
    assert list(here.target.state.rglob("*.attrs")) == []
    assert left(here) == []
    assert not stack.exists()

    steps: list[Progress] = []
    fleet = stack.up(wanted, steps.append)
    assert [node.name for node in fleet.nodes] == ["node0", "node1"]
    assert {step.subject for step in steps if step.state == "done"} == {
        f"{change.type} {change.name}" for change in plan.changes
    }
    assert stack.fleet() == fleet
    assert stack.exists()

    again = stack.preview(wanted)
    assert again.is_empty
    assert again.counts == {"same": 18}
    assert stack.up(wanted) == fleet

    stack.destroy()
    assert left(here) == []
    assert stack.fleet() is None
    stack.destroy()
    assert any(here.target.state.glob("pulumi-project/demo/home/logs/*.log"))
    stack.remove()
    # earlier states, history, plans, the engine's logs: nothing names the cluster any more
    assert files(here.target.state) == ["pulumi/.pulumi/meta.yaml"]
    assert list(here.target.state.rglob("demo")) == []
    assert not stack.exists()
    stack.destroy()


def test_a_preview_that_nobody_wants_stops_the_engine(here: Region, stack: Stack) -> None:
    refused = InputError("no such type", "")
    with pytest.raises(InputError, match="no such type"), stack.start_preview():
        raise refused
    held = here.target.state / "pulumi-project" / "demo"
    assert list(held.glob("*.plan.json")) == []
    assert left(here) == []
    assert stack.preview(demo(here)).counts == {"create": 18}


def test_a_stack_is_made_again_where_its_backend_is_new(
    here: Region, stack: Stack, engine: Engine, tmp_path: Path
) -> None:
    wanted = demo(here)
    stack.preview(wanted)
    elsewhere = replace(here.target, backend=(tmp_path / "elsewhere").as_uri())
    other = Stack("demo", elsewhere, engine)
    assert not other.exists()
    assert other.fleet() is None
    other.destroy()
    assert other.preview(wanted).counts == {"create": 18}


def test_nodes_are_launched_as_the_cluster_says(here: Region, stack: Stack) -> None:
    fleet = stack.up(demo(here, instance_type="p5.48xlarge", nodes=1, tags={"team": "ml"}))
    ec2 = client(here.target)
    [node] = ec2.describe_instances(InstanceIds=[fleet.nodes[0].instance_id])["Reservations"][0][
        "Instances"
    ]
    assert node["Placement"]["GroupName"] == "gpuctl-demo"
    assert node["PrivateIpAddress"] == fleet.nodes[0].private_ip
    assert "PublicIpAddress" not in node
    interfaces = [
        (i["Attachment"]["NetworkCardIndex"], i["Attachment"]["DeviceIndex"], i["InterfaceType"])
        for i in node["NetworkInterfaces"]
    ]
    assert sorted(interfaces) == [
        (0, 0, "interface"),
        (0, 1, "efa-only"),
        *((card, 0, "efa-only") for card in range(1, 32)),
    ]
    tags = {tag["Key"]: tag["Value"] for tag in node["Tags"]}
    assert tags.items() >= {"gpuctl:cluster": "demo", "team": "ml", "Name": "demo-node0"}.items()

    [bastion] = ec2.describe_instances(InstanceIds=[fleet.bastion_id])["Reservations"][0][
        "Instances"
    ]
    assert bastion["PublicIpAddress"] == fleet.bastion_address
    groups = {g["GroupName"]: g for g in ec2.describe_security_groups()["SecurityGroups"]}
    [ssh] = groups["gpuctl-demo-bastion"]["IpPermissions"]
    assert [r["CidrIp"] for r in ssh["IpRanges"]] == ["198.18.255.1/32"]
    nodes = groups["gpuctl-demo-nodes"]
    for direction in ("IpPermissions", "IpPermissionsEgress"):
        everything = [p for p in nodes[direction] if p["IpProtocol"] == "-1"]
        members = [pair["GroupId"] for p in everything for pair in p["UserIdGroupPairs"]]
        assert members == [nodes["GroupId"]], "EFA needs the group itself, in and out"


def test_a_third_node_touches_no_other_and_a_plan_is_carried_out_or_nothing(
    here: Region, stack: Stack, engine: Engine
) -> None:
    two = stack.up(demo(here))
    three = demo(here, nodes=3)
    assert changed(stack.preview(three)) == {Change("create", INSTANCE, "node2")}
    assert stack.up(three).nodes[:2] == two.nodes
    assert changed(stack.preview(demo(here))) == {Change("delete", INSTANCE, "node2")}
    Stack("demo", here.target, engine).up(demo(here, nodes=4))
    with pytest.raises(InfraError) as refused:
        stack.up(demo(here))
    assert str(refused.value).startswith("demo has changed since the plan was made: ")
    assert str(refused.value).endswith("; run the command again to get a new plan")
    assert len(running(here)) == 1 + 4


def test_another_instance_type_replaces_the_nodes_that_are_named(
    here: Region, stack: Stack
) -> None:
    before = stack.up(demo(here))
    other = demo(here, instance_type="p5.48xlarge")
    assert changed(stack.preview(other)) == {
        Change(
            "update",
            TEMPLATE,
            "nodes",
            (
                'instanceType: "p4d.24xlarge" -> "p5.48xlarge"',
                "networkInterfaces: 5 entries -> 33 entries",
            ),
        ),
    }
    nodes = ("node0", "node1")
    planned = changed(stack.preview(other, nodes))
    assert {change.name for change in planned if change.op == "replace"} == {*nodes}
    after = stack.up(other, replace=nodes)
    assert after.bastion_id == before.bastion_id
    assert {n.instance_id for n in after.nodes}.isdisjoint(n.instance_id for n in before.nodes)
    assert stack.preview(other).is_empty


@pytest.mark.thorough
def test_another_network_moves_the_whole_cluster(here: Region, stack: Stack) -> None:
    stack.up(demo(here))
    moved = demo(here, network={"cidr": "10.99.0.0/16"})
    nodes = ("node0", "node1")
    assert stack.preview(moved, nodes).counts["replace"] == 14
    assert stack.up(moved, replace=nodes).nodes[0].private_ip.startswith("10.99.128.")
    [vpc] = client(here.target).describe_vpcs()["Vpcs"]
    assert vpc["CidrBlock"] == "10.99.0.0/16"
    stack.destroy()
    assert left(here) == []


@pytest.mark.thorough
def test_a_node_that_powered_off_is_made_again(here: Region, stack: Stack) -> None:
    wanted = demo(here)
    before = stack.up(wanted)
    client(here.target).terminate_instances(InstanceIds=[before.nodes[1].instance_id])
    assert changed(stack.preview(wanted)) == {
        Change("create", INSTANCE, "node1", ("it no longer exists in AWS and is created again",))
    }
    after = stack.up(wanted)
    assert after.nodes[0] == before.nodes[0]
    assert after.nodes[1] != before.nodes[1]
    client(here.target).terminate_instances(InstanceIds=[after.nodes[0].instance_id])
    stack.destroy()
    assert left(here) == []


def test_a_door_that_somebody_opened_is_seen_and_closed(here: Region, stack: Stack) -> None:
    wanted = demo(here)
    fleet = stack.up(wanted)
    before = stack.drift()
    assert before is not None
    assert before.changes == ()
    assert {node.instance_id for node in fleet.nodes} < before.ids
    ec2 = client(here.target)
    named = [{"Name": "group-name", "Values": ["gpuctl-demo-bastion"]}]
    [group] = ec2.describe_security_groups(Filters=named)["SecurityGroups"]  # type: ignore[arg-type]
    ec2.authorize_security_group_ingress(
        GroupId=group["GroupId"],
        IpPermissions=[
            {
                "IpProtocol": "tcp",
                "FromPort": 22,
                "ToPort": 22,
                "IpRanges": [{"CidrIp": "0.0.0.0/0"}],
            }
        ],
    )
    ec2.create_tags(Resources=[fleet.nodes[0].instance_id], Tags=[{"Key": "by", "Value": "hand"}])
    ec2.terminate_instances(InstanceIds=[fleet.nodes[1].instance_id])
    after = stack.drift()
    assert after is not None
    assert after.ids == before.ids
    node0, node1, door = after.changes
    assert node0 == Change("update", INSTANCE, "node0", ('tags.by: (none) -> "hand"',))
    assert node1 == Change("delete", INSTANCE, "node1", ("it no longer exists",))
    assert (door.op, door.name, door.properties) == ("update", "bastion", ("ingress",))
    assert 'ingress[0].cidrBlocks[0]: "198.18.255.1/32" -> "0.0.0.0/0"' in door.details
    # Nothing has changed the state: the same differs again, and `up` sees it too.
    door = next(one for one in changed(stack.preview(wanted)) if one.name == "bastion")
    assert door.op == "update"
    assert any('"0.0.0.0/0"' in line for line in door.details)
    stack.up(wanted)
    [group] = ec2.describe_security_groups(Filters=named)["SecurityGroups"]  # type: ignore[arg-type]
    ranges = [r["CidrIp"] for p in group["IpPermissions"] for r in p["IpRanges"]]
    assert ranges == ["198.18.255.1/32"]


def test_without_a_stack_there_is_no_drift(stack: Stack) -> None:
    assert stack.drift() is None


def test_a_refusal_of_aws_is_one_line_and_down_removes_the_rest(here: Region, stack: Stack) -> None:
    here.capacity.write_text(json.dumps({"us-east-1a": {"p4d.24xlarge": 1}}))
    spot = demo(here, capacity={"type": "spot"})  # whose launches the provider repeats seldom
    failed: list[Progress] = []
    with pytest.raises(InfraError) as refused:
        stack.up(spot, lambda step: failed.append(step) if step.state == "failed" else None)
    text = str(refused.value)
    assert "(aws:ec2/instance:Instance) failed: InsufficientInstanceCapacity: " in text
    assert text.endswith("ask for fewer nodes, or try again later")
    assert "\n" not in text
    [step] = failed
    assert step.detail.startswith("InsufficientInstanceCapacity: ")
    assert stack.fleet() is None
    stack.destroy()
    assert left(here) == []


def test_a_second_cluster_of_the_name_is_refused(
    here: Region, stack: Stack, engine: Engine, tmp_path: Path
) -> None:
    stack.up(demo(here))
    elsewhere = replace(here.target, state=tmp_path / "elsewhere")
    other = Stack("demo", elsewhere, engine)
    with pytest.raises(InfraError, match="a cluster of this name already exists"):
        other.up(demo(here))
    other.destroy()
    assert stack.preview(demo(here)).is_empty


def test_a_passphrase_for_other_stacks_does_not_count(
    here: Region, stack: Stack, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    stack.up(demo(here, nodes=1))
    for variable in ("PULUMI_CONFIG_PASSPHRASE", "PULUMI_CONFIG_PASSPHRASE_FILE"):
        with monkeypatch.context() as environment:
            environment.setenv(variable, "of another stack")
            assert Stack("demo", here.target, engine).preview(demo(here, nodes=1)).is_empty


def test_a_provider_elsewhere_is_refused(here: Region, engine: Engine) -> None:
    away = type(here.target)(**{**vars(here.target), "provider_address": "192.0.2.1:80"})
    with pytest.raises(InfraError, match="must be on loopback"):
        Stack("demo", away, engine).exists()
