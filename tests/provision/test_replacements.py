"""Why nodes are replaced: from what differs in the plan, and in the cluster file."""

from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from infra.stack.changes import Change, Plan
from provision.preflight.replacements import is_unrequested, replacement_reasons

INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"
FORCED = 'launchTemplate.version: "1" -> (known after apply) (forces replacement)'


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", **changes}
    )


def replacing(*details: str) -> Plan:
    """A plan in which the launch template changes so, and with it both nodes."""
    return Plan(
        (
            Change("replace", "aws:ec2/subnet:Subnet", "nodes", ("cidrBlock: 1 -> 2",)),
            Change("update", TEMPLATE, "nodes", details),
            *(Change("replace", INSTANCE, f"node{i}", (FORCED,)) for i in range(2)),
            Change(
                "create", INSTANCE, "node2", ("it no longer exists in AWS and is created again",)
            ),
            Change("update", INSTANCE, "bastion", ("tags.a: 1 -> 2",)),
        )
    )


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
        ({"tags": {"a": "b"}}, "tagSpecifications[0].tags.a: x", "tags changed"),
        ({"nodes": 3}, "imageId: x", "image changed"),
        ({"nodes": 3}, "instanceType: x", "instance type changed"),
        ({"nodes": 3}, NETWORK, "network interfaces changed"),
        ({"nodes": 3}, ROOT, "root volume changed"),
        ({"nodes": 3}, "metadataOptions.x: 2 -> 1", "metadata options changed"),
        ({"nodes": 3}, "instanceMarketOptions: x", "market options changed"),
        ({"nodes": 3}, "capacityReservationSpecification: x", "capacity reservation changed"),
        ({"nodes": 3}, "placement: x", "placement changed"),
        ({"nodes": 3}, "tagSpecifications[0].x: x", "tags changed"),
        ({"nodes": 3}, "keyName: x", "ssh key changed"),
        ({"nodes": 3}, "subnetId: x", "subnet changed"),
        ({"nodes": 3}, "ebsOptimized: x", "ebsOptimized changed"),
    ],
)
def test_the_fields_of_the_file_are_named(
    changes: dict[str, Any], detail: str, reason: str
) -> None:
    found = replacement_reasons(replacing(detail), cluster(), cluster(**changes), refresh=False)
    assert found == {"node0": reason, "node1": reason}
    back = replacement_reasons(replacing(detail), cluster(**changes), cluster(), refresh=False)
    assert back == found


def test_several_reasons_are_named_once_each() -> None:
    changes = {"image": "ami-0123456789abcdef0", "tags": {"a": "b"}, "nodes": 3}
    plan = replacing("imageId: x", "metadataOptions.x: 2 -> 1", "tagSpecifications: x", USER_DATA)
    found = replacement_reasons(plan, cluster(), cluster(**changes), refresh=False)
    assert found["node0"] == "image, tags changed; metadata options changed"


def test_what_the_file_does_not_say_is_said_of_refresh() -> None:
    plan = replacing('imageId: "a" -> "b"', "metadataOptions.httpPutResponseHopLimit: 2 -> 1")
    found = replacement_reasons(plan, cluster(), cluster(image="dlami-ubuntu-22.04"), refresh=True)
    assert found["node0"] == "image changed; --refresh: metadata options changed"


def test_without_a_file_of_before_what_differs_is_said() -> None:
    assert replacement_reasons(replacing("userData: 1"), None, cluster(), refresh=False)[
        "node0"
    ] == ("user data changed")


def test_a_node_of_an_earlier_template_is_told_from_one_whose_template_changes() -> None:
    """So it is after an `up` that ended between two nodes."""
    node = Change("replace", INSTANCE, "node1", (FORCED,))
    for template in ((), (Change("same", TEMPLATE, "nodes"),)):
        assert replacement_reasons(
            Plan((*template, node)), cluster(), cluster(), refresh=False
        ) == {"node1": "it was launched by an earlier launch template"}


def test_of_a_bastion_that_alone_counts_which_forces_it() -> None:
    forced = "userDataBase64: 1 -> 2 (forces replacement)"
    entry = Change("replace", INSTANCE, "bastion", ("metadataOptions.x: 2 -> 1", forced))
    plan = Plan((*replacing("imageId: 1 -> 2").changes, entry))
    longer = cluster(lifetime={"max": "8h"})
    assert replacement_reasons(plan, cluster(), longer, refresh=False) == {
        "node0": "image changed",
        "node1": "image changed",
        "bastion": "lifetime changed",
    }
    assert replacement_reasons(plan, cluster(), cluster(), refresh=True)["bastion"] == (
        "--refresh: user data changed"
    )


@pytest.mark.parametrize(
    ("changes", "details", "unrequested"),
    [
        ({}, (USER_DATA,), True),
        ({}, (FORCED,), True),
        ({}, (), True),
        ({"nodes": 3}, (USER_DATA, NETWORK), True),
        ({"setup": {"commands": ("true",)}}, (NETWORK,), True),
        ({"setup": {"commands": ("true",)}}, (USER_DATA,), False),
        ({"setup": {"commands": ("true",)}}, (USER_DATA, NETWORK), False),
    ],
)
def test_a_replacement_of_all_nodes_that_no_field_asks_for(
    changes: dict[str, Any], details: tuple[str, ...], unrequested: bool
) -> None:
    assert is_unrequested(replacing(*details), cluster(), cluster(**changes)) is unrequested


def test_a_replacement_of_one_node_is_no_replacement_of_all() -> None:
    one = Change("replace", INSTANCE, "node0", (FORCED,))
    stays, new = Change("same", INSTANCE, "node1"), Change("create", INSTANCE, "node1")
    assert not is_unrequested(Plan((one, stays)), cluster(), cluster())
    assert is_unrequested(Plan((one, new)), cluster(), cluster())
    assert not is_unrequested(Plan((new,)), cluster(), cluster())
    bastion = Change("replace", INSTANCE, "bastion", ("ami: 1 -> 2",))
    assert not is_unrequested(Plan((bastion, stays)), cluster(), cluster())
