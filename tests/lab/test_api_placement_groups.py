"""Placement groups, with AWS's errors."""

from collections.abc import Iterator

import pytest

from tests.lab.world import World, refused, world


@pytest.fixture
def region() -> Iterator[World]:
    with world() as made:
        yield made


def test_create_describe_delete(region: World) -> None:
    tags = [{"Key": "gpuctl:cluster", "Value": "demo"}]
    region.ec2.create_placement_group(
        GroupName="demo",
        Strategy="cluster",
        TagSpecifications=[{"ResourceType": "placement-group", "Tags": tags}],
    )
    filters = [{"Name": "tag:gpuctl:cluster", "Values": ["demo"]}]
    (group,) = region.ec2.describe_placement_groups(Filters=filters)["PlacementGroups"]
    assert (group["GroupName"], group["Strategy"], group["State"]) == (
        "demo",
        "cluster",
        "available",
    )
    assert group["Tags"] == tags
    more = [{"Key": "Name", "Value": "demo"}]
    region.ec2.create_tags(Resources=[group["GroupId"]], Tags=more)
    (group,) = region.ec2.describe_placement_groups(GroupNames=["demo"])["PlacementGroups"]
    assert group["Tags"] == tags + more
    region.ec2.delete_placement_group(GroupName="demo")
    assert region.ec2.describe_placement_groups()["PlacementGroups"] == []


def test_a_burstable_type_is_refused(region: World) -> None:
    region.ec2.create_placement_group(GroupName="demo", Strategy="cluster")
    group = {"GroupName": "demo"}
    with refused(
        "InvalidParameterCombination",
        "Cluster placement groups are not supported by the 't3.large' instance type. Specify a"
        " supported instance type or change the placement group strategy, and try again.",
    ):
        region.run(InstanceType="t3.large", SubnetId=region.subnet, Placement=group)


def test_a_name_is_taken_once(region: World) -> None:
    region.ec2.create_placement_group(GroupName="demo")
    with refused("InvalidPlacementGroup.Duplicate", "The placement group 'demo' already exists."):
        region.ec2.create_placement_group(GroupName="demo")


def test_an_unknown_group(region: World) -> None:
    text = "The Placement Group 'demo' is unknown."
    with refused("InvalidPlacementGroup.Unknown", text):
        region.ec2.describe_placement_groups(GroupNames=["demo"])
    with refused("InvalidPlacementGroup.Unknown", text):
        region.ec2.delete_placement_group(GroupName="demo")


def test_a_group_is_in_use_until_its_instances_are_terminated(region: World) -> None:
    region.ec2.create_placement_group(GroupName="demo")
    ids = region.run(2, Placement={"GroupName": "demo"})
    region.ec2.stop_instances(InstanceIds=ids[:1])
    region.ec2.terminate_instances(InstanceIds=ids[1:])
    with refused(
        "InvalidPlacementGroup.InUse",
        "The placement group 'demo' is in use and may not be deleted.",
    ):
        region.ec2.delete_placement_group(GroupName="demo")
    region.ec2.terminate_instances(InstanceIds=ids)
    region.ec2.delete_placement_group(GroupName="demo")


def test_groups_are_one_regions_own(region: World) -> None:
    region.ec2.create_placement_group(GroupName="demo")
    elsewhere = region.client("ec2", "us-west-2")
    assert elsewhere.describe_placement_groups()["PlacementGroups"] == []
