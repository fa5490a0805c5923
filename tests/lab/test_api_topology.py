"""DescribeInstanceTopology as the lab answers it, with AWS's shapes and errors."""

from collections.abc import Iterator
from typing import Any

import pytest

from tests.lab.world import World, refused, world


@pytest.fixture
def region() -> Iterator[World]:
    with world() as made:
        made.ec2.create_placement_group(GroupName="demo", Strategy="cluster")
        yield made


def named(region: World, name: str, **more: Any) -> str:
    tags = [{"ResourceType": "instance", "Tags": [{"Key": "Name", "Value": name}]}]
    placement = {"GroupName": "demo"}
    (made,) = region.run(Placement=placement, TagSpecifications=tags, **more)
    return made


def told(region: World, *ids: str) -> dict[str, list[str]]:
    found = region.ec2.describe_instance_topology(InstanceIds=list(ids))["Instances"]
    return {one["InstanceId"]: one.get("NetworkNodes", []) for one in found}


def test_instances_are_told_with_their_network_nodes(region: World) -> None:
    one = named(region, "demo-node0")
    (shown,) = region.ec2.describe_instance_topology(InstanceIds=[one])["Instances"]
    above = shown.pop("NetworkNodes")
    assert shown == {
        "InstanceId": one,
        "InstanceType": "p4d.24xlarge",
        "GroupName": "demo",
        "AvailabilityZone": "us-east-1a",
        "ZoneId": "use1-az6",
    }
    assert len(set(above)) == 3
    assert all(name.startswith("nn-") and len(name) == 20 for name in above)


def test_even_and_odd_numbers_are_neighbours_and_eight_share_the_middle(region: World) -> None:
    ids = [named(region, f"demo-node{number}") for number in (0, 1, 2, 3, 8)]
    zero, one, two, three, eight = (told(region, *ids)[name] for name in ids)
    assert zero == two
    assert one == three
    assert zero[:2] == one[:2]
    assert zero[2] != one[2]
    assert zero[0] == eight[0]
    assert zero[1] != eight[1]


def test_blackwell_has_four_layers_and_a_small_type_none(region: World) -> None:
    elsewhere = region.new_subnet("10.213.16.0/20", "us-east-1c")
    big = named(region, "demo-node0", InstanceType="p6-b200.48xlarge", SubnetId=elsewhere)
    (small,) = region.run(InstanceType="g5.xlarge", SubnetId=region.subnet)
    answer = told(region, big, small)
    assert len(answer[big]) == 4
    assert answer[small] == []
    (listed,) = region.ec2.describe_instance_topology()["Instances"]
    assert listed["InstanceId"] == big


def test_an_instance_that_does_not_run_has_none(region: World) -> None:
    one = named(region, "demo-node0")
    region.ec2.stop_instances(InstanceIds=[one])
    assert told(region, one) == {one: []}


def test_pages_groups_and_filters(region: World) -> None:
    ids = [named(region, f"demo-node{number}") for number in range(3)]
    region.run()  # in no group
    pages = region.ec2.get_paginator("describe_instance_topology").paginate(
        GroupNames=["demo"], PaginationConfig={"PageSize": 2}
    )
    found = [[one["InstanceId"] for one in page["Instances"]] for page in pages]
    assert [len(page) for page in found] == [2, 1]
    assert sorted(one for page in found for one in page) == sorted(ids)

    def count(name: str, value: str) -> int:
        filters = [{"Name": name, "Values": [value]}]
        return len(region.ec2.describe_instance_topology(Filters=filters)["Instances"])

    assert count("instance-type", "p4d*") == 4
    assert count("instance-type", "p5*") == 0
    assert count("zone-id", "use1-az6") == 4
    assert count("availability-zone", "us-east-1b") == 0


def test_named_instances_come_in_pages_of_twenty(region: World) -> None:
    ids = region.run(21, InstanceType="g6e.8xlarge", SubnetId=region.subnet)
    first = region.ec2.describe_instance_topology(InstanceIds=ids)
    assert len(first["Instances"]) == 20
    rest = region.ec2.describe_instance_topology(InstanceIds=ids, NextToken=first["NextToken"])
    assert [found["InstanceId"] for found in first["Instances"] + rest["Instances"]] == ids
    assert "NextToken" not in rest


def test_refusals(region: World) -> None:
    ec2 = region.ec2
    with refused("InvalidInstanceID.NotFound", "The instance ID 'i-0123' does not exist"):
        ec2.describe_instance_topology(InstanceIds=["i-0123"])
    with refused("InvalidPlacementGroup.Unknown", "The Placement Group 'other' is unknown."):
        ec2.describe_instance_topology(GroupNames=["other"])
    with refused(
        "InvalidParameterCombination",
        "The parameter MaxResults cannot be used with the parameter InstanceIds",
    ):
        ec2.describe_instance_topology(InstanceIds=["i-0123"], MaxResults=5)
    with refused("InvalidParameterValue", "InstanceIds may have 100 entries, 101 were given"):
        ec2.describe_instance_topology(InstanceIds=[f"i-{n:017x}" for n in range(101)])
