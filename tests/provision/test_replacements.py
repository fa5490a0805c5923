"""Which nodes keep older settings or are replaced, and why: from the plan, and from the file."""

from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from infra.stack.changes import Change, Plan
from provision.preflight.replacements import OlderSettings, older_settings, replacement_reasons

INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", **changes}
    )


def changing(*details: str) -> Plan:
    """A plan in which the launch template of two nodes changes so."""
    return Plan(
        (
            Change("replace", "aws:ec2/subnet:Subnet", "nodes", ("cidrBlock: 1 -> 2",)),
            Change("update", TEMPLATE, "nodes", details),
            Change("same", INSTANCE, "node0"),
            Change("update", INSTANCE, "node1", ("tags.a: 1 -> 2",)),
            Change(
                "create", INSTANCE, "node2", ("it no longer exists in AWS and is created again",)
            ),
            Change("delete", INSTANCE, "node3"),
            Change("update", INSTANCE, "bastion", ("tags.a: 1 -> 2",)),
        ),
        launched_with={"node0": "1", "node1": "1", "node3": "1"},
        template="lt-0123456789abcdef0",
        newest="1",
    )


def older(
    plan: Plan,
    before: Cluster | None,
    now: Cluster,
    behind: tuple[str, ...] = (),
    *,
    refresh: bool = False,
) -> dict[str, OlderSettings]:
    versions = {"1": frozenset(behind)} if behind else {}
    return older_settings(plan, before, now, versions, refresh=refresh)


USER_DATA, NETWORK, ROOT = "userData: 1 -> 2", "networkInterfaces: x", "blockDeviceMappings: x"
SHARED = {"storage": {"shared": {"type": "efs"}}}


@pytest.mark.parametrize(
    ("changes", "detail", "reason"),
    [
        ({"image": "dlami-ubuntu-22.04"}, "imageId: 1 -> 2", "image changed"),
        ({"image": "dlami-ubuntu-22.04"}, USER_DATA, "image changed"),
        ({"image": "dlami-ubuntu-22.04"}, ROOT, "image changed"),
        ({"instance_type": "p5.48xlarge"}, "instanceType: 1 -> 2", "instance_type changed"),
        ({"instance_type": "p5.48xlarge"}, USER_DATA, "instance_type changed"),
        ({"instance_type": "p5.48xlarge"}, NETWORK, "instance_type changed"),
        ({"setup": {"commands": ("true",)}}, USER_DATA, "setup.commands changed"),
        ({"software": {"packages": ("htop",)}}, USER_DATA, "software.packages changed"),
        ({"lifetime": {"max": "8h"}}, USER_DATA, "lifetime changed"),
        (SHARED, USER_DATA, "storage.shared changed"),
        (SHARED, NETWORK, "storage.shared changed"),
        ({"storage": {"scratch": "/fast"}}, USER_DATA, "storage.scratch changed"),
        ({"storage": {"root": {"gib": 300}}}, ROOT, "storage.root.gib changed"),
        ({"storage": {"root": {"gib": 300}}}, USER_DATA, "user data changed"),
        ({"network": {"efa": "off"}}, USER_DATA, "network.efa changed"),
        ({"network": {"interfaces": "max-bandwidth"}}, USER_DATA, "network.interfaces changed"),
        ({"network": {"cidr": "10.9.0.0/16"}}, NETWORK, "network.cidr changed"),
        ({"network": {"cidr": "10.9.0.0/16"}}, "subnetId: x", "network.cidr changed"),
        ({"capacity": {"zones": ("us-east-1b",)}}, NETWORK, "capacity.zones changed"),
        ({"capacity": {"zones": ("us-east-1b",)}}, "subnetId: x", "capacity.zones changed"),
        ({"capacity": {"type": "spot"}}, "instanceMarketOptions: x", "capacity.type changed"),
        (
            {"capacity": {"id": "cr-0123456789abcdef0"}},
            "capacityReservationSpecification: x",
            "capacity.id changed",
        ),
        ({"capacity": {"id": "cr-0123456789abcdef0"}}, "placement: x", "capacity.id changed"),
        ({"placement": {"strategy": "none"}}, "placement: x", "placement.strategy changed"),
        ({"nodes": 3}, "imageId: x", "image changed"),
        ({"nodes": 3}, "instanceType: x", "instance type changed"),
        ({"nodes": 3}, NETWORK, "network interfaces changed"),
        ({"nodes": 3}, ROOT, "root volume changed"),
        ({"instance_profile": "team"}, "iamInstanceProfile: x", "instance_profile changed"),
        ({"nodes": 3}, "instanceMarketOptions: x", "market options changed"),
        ({"nodes": 3}, "capacityReservationSpecification: x", "capacity reservation changed"),
        ({"nodes": 3}, "placement: x", "placement changed"),
        ({"nodes": 3}, "keyName: x", "ssh key changed"),
        ({"nodes": 3}, "subnetId: x", "subnet changed"),
        ({"nodes": 3}, "ebsOptimized: x", "ebsOptimized changed"),
    ],
)
def test_the_fields_of_the_file_are_named(
    changes: dict[str, Any], detail: str, reason: str
) -> None:
    found = older(changing(detail), cluster(), cluster(**changes))
    assert {name: one.reason for name, one in found.items()} == {"node0": reason, "node1": reason}
    assert older(changing(detail), cluster(**changes), cluster()) == found


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"image": "dlami-ubuntu-22.04"}, "imageId: 1 -> 2"),
        ({"setup": {"commands": ("true",)}}, USER_DATA),
        ({"software": {"packages": ("htop",)}}, USER_DATA),
        ({"lifetime": {"max": "8h"}}, USER_DATA),
        ({"storage": {"root": {"gib": 300}}}, ROOT),
        ({}, USER_DATA),
    ],
)
def test_a_node_may_stay_where_the_cluster_works_all_the_same(
    changes: dict[str, Any], detail: str
) -> None:
    found = older(changing(detail), cluster(), cluster(**changes))
    assert {name: one.may_stay for name, one in found.items()} == {"node0": True, "node1": True}


@pytest.mark.parametrize(
    ("changes", "detail"),
    [
        ({"instance_type": "p5.48xlarge"}, USER_DATA),
        (SHARED, USER_DATA),
        ({"storage": {"scratch": "/fast"}}, USER_DATA),
        ({"network": {"cidr": "10.9.0.0/16"}}, NETWORK),
        ({"capacity": {"type": "spot"}}, "instanceMarketOptions: x"),
        ({"placement": {"strategy": "none"}}, "placement: x"),
        # An `up --replace all` that was interrupted has written the new file into the record.
        ({}, "instanceType: 1 -> 2"),
        ({"image": "dlami-ubuntu-22.04"}, NETWORK),
    ],
)
def test_a_node_may_not_stay_where_all_must_agree(changes: dict[str, Any], detail: str) -> None:
    found = older(changing(detail), cluster(), cluster(**changes))
    assert {name: one.may_stay for name, one in found.items()} == {"node0": False, "node1": False}


@pytest.mark.parametrize("detail", ["tagSpecifications[0].tags.a: x", "tags.a: x"])
def test_tags_make_no_node_older(detail: str) -> None:
    assert older(changing(detail), cluster(), cluster(tags={"a": "b"})) == {}


def test_a_node_of_an_earlier_version_is_older_although_nothing_changes() -> None:
    still = Plan(
        (Change("same", TEMPLATE, "nodes"), *changing().changes[2:]), {"node0": "1", "node1": "2"}
    )
    found = older(still, cluster(), cluster(), ("imageId", "tagSpecifications"))
    assert found == {"node0": OlderSettings("image changed", may_stay=True)}


def test_what_the_plan_takes_back_makes_no_node_older() -> None:
    """Somebody else made version 2, and the nodes are of version 1."""
    assert older(changing(USER_DATA), cluster(), cluster(), ("userData",)) == {}
    asked = cluster(setup={"commands": ("true",)})
    found = older(changing(USER_DATA), cluster(), asked, ("userData", "imageId"))
    assert found["node0"].reason == "setup.commands changed; image changed"


def test_several_reasons_are_named_once_each() -> None:
    changes = {"image": "ami-0123456789abcdef0", "nodes": 3}
    plan = changing("imageId: x", "keyName: 2 -> 1", USER_DATA)
    found = older(plan, cluster(), cluster(**changes))
    assert found["node0"].reason == "image changed; ssh key changed"


def test_what_the_file_does_not_say_is_said_of_refresh() -> None:
    plan = changing('imageId: "a" -> "b"', "networkInterfaces[1].deviceIndex: 1 -> 0")
    found = older(plan, cluster(), cluster(image="dlami-ubuntu-22.04"), refresh=True)
    assert found["node0"].reason == "image changed; --refresh: network interfaces changed"


def test_without_a_file_of_before_what_differs_is_said() -> None:
    assert older(changing(USER_DATA), None, cluster())["node0"].reason == "user data changed"


def test_a_node_that_is_named_is_replaced_for_that_and_for_its_older_settings() -> None:
    named = tuple(Change("replace", INSTANCE, f"node{i}") for i in range(2))
    plan = Plan(named, {"node0": "1", "node1": "2"}, "lt-0", "2")
    found = older(plan, cluster(), cluster(), ("imageId",))
    assert replacement_reasons(plan, cluster(), cluster(), found, refresh=False) == {
        "node0": "--replace names it; image changed",
        "node1": "--replace names it",
    }


def test_of_a_bastion_that_alone_counts_which_forces_it() -> None:
    forced = "userDataBase64: 1 -> 2 (forces replacement)"
    entry = Change("replace", INSTANCE, "bastion", ("metadataOptions.x: 2 -> 1", forced))
    longer = cluster(lifetime={"max": "8h"})
    for now, refresh, reason in (
        (longer, False, "lifetime changed"),
        (cluster(), True, "--refresh: user data changed"),
    ):
        found = replacement_reasons(Plan((entry,)), cluster(), now, {}, refresh=refresh)
        assert found == {"bastion": reason}
