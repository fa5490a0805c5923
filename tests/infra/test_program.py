"""The program is a function from a cluster to resources."""

import pytest

from config.cluster.resolved import ExistingNetwork
from config.target import Target
from tests.infra.program_mocks import resources_of
from tests.infra.region import resolved

GROUP = "aws:ec2/securityGroup:SecurityGroup nodes"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate nodes"


def test_nodes_share_a_template_with_every_efa_interface_in_one_placement_group(
    target: Target,
) -> None:
    resources = resources_of(resolved(target, instance_type="p5.48xlarge", nodes=3))
    template = resources[TEMPLATE]
    kinds = [interface["interfaceType"] for interface in template["networkInterfaces"]]
    assert (kinds.count("interface"), kinds.count("efa-only")) == (1, 32)
    assert template["placement"] == {"groupName": "gpuctl-demo"}
    group = resources["aws:ec2/placementGroup:PlacementGroup nodes"]
    assert (group["name"], group["strategy"]) == ("gpuctl-demo", "cluster")
    nodes = {
        name: inputs["launchTemplate"]
        for name, inputs in resources.items()
        if name.startswith("aws:ec2/instance:Instance node")
    }
    assert nodes == {
        f"aws:ec2/instance:Instance node{rank}": {"id": "nodes-id", "version": "3"}
        for rank in range(3)
    }


def test_the_nodes_group_allows_all_traffic_among_its_members_for_efa(target: Target) -> None:
    group = resources_of(resolved(target))[GROUP]
    among = {"protocol": "-1", "fromPort": 0, "toPort": 0, "self": True}
    for direction in ("ingress", "egress"):
        assert any(among.items() <= rule.items() for rule in group[direction]), direction


@pytest.mark.parametrize(
    ("capacity", "market"),
    [
        ({"type": "on-demand"}, None),
        (
            {"type": "spot"},
            {
                "marketType": "spot",
                "spotOptions": {
                    "spotInstanceType": "one-time",
                    "instanceInterruptionBehavior": "terminate",
                },
            },
        ),
    ],
)
def test_the_template_says_how_capacity_is_bought(
    target: Target, capacity: dict[str, str], market: object
) -> None:
    template = resources_of(resolved(target, capacity=capacity))[TEMPLATE]
    assert template.get("instanceMarketOptions") == market


def test_an_existing_network_gets_no_vpc_and_no_route(target: Target) -> None:
    demo = resolved(target)
    network = ExistingNetwork(
        vpc="vpc-1", subnets={demo.zone: "subnet-1"}, bastion_subnet="subnet-2"
    )
    resources = resources_of(demo.model_copy(update={"existing_network": network}))
    assert {name.partition(" ")[0] for name in resources} - {"pulumi:pulumi:Stack"} == {
        "pulumi:providers:aws",
        "aws:ec2/securityGroup:SecurityGroup",
        "aws:ec2/keyPair:KeyPair",
        "aws:ec2/instance:Instance",
        "aws:ec2/launchTemplate:LaunchTemplate",
        "aws:ec2/placementGroup:PlacementGroup",
    }
    assert resources[GROUP]["vpcId"] == "vpc-1"


def test_a_shared_file_system_is_mounted_by_the_nodes_and_reached_by_them_alone(
    target: Target,
) -> None:
    resources = resources_of(resolved(target, storage={"shared": {"type": "efs"}}))
    group = resources["aws:ec2/securityGroup:SecurityGroup shared"]
    assert [(rule["fromPort"], rule["self"]) for rule in group["ingress"]] == [(2049, True)]
    assert resources[TEMPLATE]["networkInterfaces"][0]["securityGroups"] == [
        "nodes-id",
        "shared-id",
    ]


def test_tags_of_others_are_declared_where_they_are_and_the_files_value_wins(
    target: Target,
) -> None:
    given = resolved(target, tags={"team": "ml"})
    foreign = {
        "aws:ec2/vpc:Vpc vpc tags": {"by": "hand", "team": "theirs"},
        "aws:ec2/instance:Instance bastion volume_tags": {"Backup": "daily"},
        "aws:ec2/instance:Instance node9 tags": {"by": "nobody"},
    }
    before = resources_of(given)
    after = resources_of(given.model_copy(update={"foreign_tags": foreign}))
    vpc, bastion = "aws:ec2/vpc:Vpc vpc", "aws:ec2/instance:Instance bastion"
    assert after[vpc]["tags"] == {**before[vpc]["tags"], "by": "hand"}
    assert after[vpc]["tags"]["team"] == "ml"
    assert after[bastion]["volumeTags"] == {**before[bastion]["volumeTags"], "Backup": "daily"}
    assert after[bastion]["tags"] == before[bastion]["tags"]
    assert {name for name in before if before[name] != after[name]} == {vpc, bastion}
