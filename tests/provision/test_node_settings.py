"""What `up` changes on nodes that run, what they keep, and how they get new machines."""

from collections.abc import Collection, Mapping
from typing import Any, ClassVar

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import InfraError, InputError
from config.progress import Reporter, silent
from infra.fleet import NO_CLAIMS, Claims, Fleet
from infra.stack.changes import Change
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from nodes.inventory import Inventory
from provision import healing
from provision import up as life
from provision.drift import drift
from provision.preflight.replacements import OlderSettings
from tests.infra.region import Region, client
from tests.provision.unbooted import nothing_boots

pytestmark = [pytest.mark.engine, pytest.mark.thorough]

FILE: dict[str, Any] = {"name": "demo", "nodes": 2, "instance_type": "c6i.large"}
INSTANCE = "aws:ec2/instance:Instance"
TEMPLATE = "aws:ec2/launchTemplate:LaunchTemplate"


class Upped:
    """A cluster of two nodes whose machines nobody waits for."""

    def __init__(self, here: Region) -> None:
        self.here = here
        self.inventory = self.up()

    def plan(self, *replace: str, **file: Any) -> life.FleetPlan:
        cluster = Cluster.model_validate({**FILE, **file})
        return life.plan(cluster, self.here.target, silent, replace=replace)

    def up(self, *replace: str, **file: Any) -> Inventory:
        planned = self.plan(*replace, **file)
        planned.check_replacement()
        self.inventory = life.up(planned, self.here.target, silent, boot=nothing_boots)
        return self.inventory

    @property
    def ids(self) -> dict[str, str]:
        return {node.name: node.instance_id for node in self.inventory.nodes}

    def image(self, node: str) -> str:
        [found] = client(self.here.target).describe_instances(InstanceIds=[self.ids[node]])[
            "Reservations"
        ]
        return found["Instances"][0]["ImageId"]

    def tags(self, node: str) -> list[Mapping[str, str]]:
        """The tags of the node's instance and of its volumes."""
        ec2: Any = client(self.here.target)
        node_id = self.ids[node]
        attached = [{"Name": "attachment.instance-id", "Values": [node_id]}]
        found = ec2.describe_instances(InstanceIds=[node_id])["Reservations"][0]["Instances"]
        found += ec2.describe_volumes(Filters=attached)["Volumes"]
        return [
            {t["Key"]: t["Value"] for t in one["Tags"] if not t["Key"].startswith("aws:")}
            for one in found
        ]


@pytest.fixture
def demo(here: Region, engine: Engine) -> Upped:
    del engine  # it exists
    return Upped(here)


def changes(plan: life.FleetPlan) -> dict[str, str]:
    """The operation on each resource that changes, by type and name."""
    return {f"{c.type} {c.name}": c.op for c in plan.plan.changes if c.op != "same"}


def test_a_plan_after_up_is_empty_and_nothing_has_drifted(here: Region, demo: Upped) -> None:
    """EC2 has user data of each node that the program does not give it."""
    assert demo.plan().plan.is_empty
    assert drift("demo", here.target, silent).is_empty


def test_a_new_tag_is_set_on_nodes_that_run_and_on_their_volumes(demo: Upped) -> None:
    before = demo.ids
    planned = demo.plan(tags={"team": "ml"})
    assert {op for op in changes(planned).values()} == {"update"}
    assert (planned.older, planned.replaced) == ({}, {})
    demo.up(tags={"team": "ml"})
    assert demo.ids == before
    for name in ("node0", "node1"):
        assert [(tags["team"], tags["Name"]) for tags in demo.tags(name)] == [
            ("ml", f"demo-{name}")
        ] * 2
    assert demo.plan(tags={"team": "ml"}).plan.is_empty


def test_the_rules_of_security_groups_change_while_nodes_run(here: Region, demo: Upped) -> None:
    before, network = demo.ids, {"ssh_from": "192.0.2.0/24"}
    planned = demo.plan(network=network)
    assert list(changes(planned).values()) == ["update"]
    assert (planned.older, planned.replaced) == ({}, {})
    demo.up(network=network)
    assert demo.ids == before
    groups = client(here.target).describe_security_groups()["SecurityGroups"]
    sources = {
        source["CidrIp"]
        for group in groups
        for rule in group["IpPermissions"]
        for source in rule["IpRanges"]
        if rule.get("FromPort") == 22
    }
    assert sources == {"192.0.2.0/24"}
    assert demo.plan(network=network).plan.is_empty


def test_metadata_options_are_changed_on_nodes_that_run(here: Region, demo: Upped) -> None:
    before, ec2 = demo.ids, client(here.target)
    ec2.modify_instance_metadata_options(
        InstanceId=before["node1"],
        HttpTokens="optional",
        HttpEndpoint="enabled",
        HttpPutResponseHopLimit=2,
    )
    [found] = drift("demo", here.target, silent).changes
    assert found == Change(
        "update",
        INSTANCE,
        "node1",
        (
            "metadataOptions.httpPutResponseHopLimit: 1 -> 2",
            'metadataOptions.httpTokens: "required" -> "optional"',
        ),
    )
    demo.up()
    assert demo.ids == before
    [shown] = ec2.describe_instances(InstanceIds=[before["node1"]])["Reservations"]
    options = shown["Instances"][0]["MetadataOptions"]
    assert (options["HttpTokens"], options["HttpPutResponseHopLimit"]) == ("required", 1)


def test_nodes_keep_their_image_until_they_are_named(here: Region, demo: Upped) -> None:
    old, before = demo.image("node0"), demo.ids
    newer: dict[str, Any] = {"image": "dlami-ubuntu-22.04"}
    planned = demo.plan(**newer)
    stays = OlderSettings("image changed", may_stay=True)
    assert planned.older == {"node0": stays, "node1": stays}
    assert changes(planned) == {f"{TEMPLATE} nodes": "update"}
    demo.up(**newer)
    assert demo.ids == before

    # It is said as long as it is so, and a new node has the new image.
    assert demo.plan(**newer).older == {"node0": stays, "node1": stays}
    demo.up(nodes=3, **newer)
    assert {name: demo.image(name) for name in ("node0", "node1")} == dict.fromkeys(
        ("node0", "node1"), old
    )
    new = demo.image("node2")
    assert new != old
    assert {**demo.ids, **before} == demo.ids

    named = demo.plan("node1", nodes=3, **newer)
    assert named.replaced == {"node1": "--replace names it; image changed"}
    assert named.kept == {"node0": stays}
    assert changes(named) == {f"{INSTANCE} node1": "replace"}
    demo.up("node1", nodes=3, **newer)
    assert demo.image("node1") == new
    assert (demo.ids["node0"], demo.image("node0")) == (before["node0"], old)
    assert demo.plan(nodes=3, **newer).older == {"node0": stays}

    # A node that heals is new, too.
    node0 = demo.inventory.nodes[0]
    demo.inventory = healing.replace_nodes("demo", [node0], here.target, silent, boot=nothing_boots)
    assert demo.image("node0") == new
    assert demo.plan(nodes=3, **newer).older == {}


def test_all_nodes_get_new_machines_if_all_are_named(demo: Upped) -> None:
    before = demo.ids
    planned = demo.plan("all")
    assert planned.replaced == dict.fromkeys(("node0", "node1"), "--replace names it")
    demo.up("all")
    assert set(demo.ids.values()).isdisjoint(before.values())
    assert demo.plan().plan.is_empty


def test_a_name_that_no_node_has_is_refused(demo: Upped) -> None:
    with pytest.raises(InputError) as refused:
        demo.plan("node1", "node7")
    assert str(refused.value) == ("--replace: cluster demo has no node node7; it has node[0-1]")


@pytest.mark.parametrize(
    ("file", "reason"),
    [
        ({"instance_type": "c6i.xlarge"}, "instance_type changed"),
        ({"network": {"cidr": "10.99.0.0/16"}}, "network.cidr changed"),
        ({"placement": {"strategy": "none"}}, "placement.strategy changed"),
    ],
)
def test_what_all_nodes_must_agree_in_changes_with_all_of_them(
    demo: Upped, file: dict[str, Any], reason: str
) -> None:
    before = demo.ids
    with pytest.raises(InputError) as refused:
        demo.up(**file)
    assert str(refused.value) == (
        f"node[0-1] of demo cannot stay as they are: {reason}; --replace all makes new machines of"
        " all nodes: what is on their disks is lost, and capacity that is given back may not come"
        " again"
    )
    with pytest.raises(InputError) as refused:
        demo.up("node0", **file)
    assert refused.value.message == f"node1 of demo cannot stay as it is: {reason}"
    demo.up("all", **file)
    assert set(demo.ids.values()).isdisjoint(before.values())
    assert demo.plan(**file).plan.is_empty


def test_a_template_that_somebody_changed_is_put_right_and_no_node_is_touched(
    here: Region, demo: Upped
) -> None:
    before, ec2 = demo.ids, client(here.target)
    template = "gpuctl-demo-nodes"
    versions = ec2.describe_launch_template_versions(LaunchTemplateName=template, Versions=["1"])
    data: Any = versions["LaunchTemplateVersions"][0]["LaunchTemplateData"]
    other: Any = {**data, "UserData": "IyEvYmluL3NoCg=="}
    ec2.create_launch_template_version(LaunchTemplateName=template, LaunchTemplateData=other)
    planned = demo.plan()
    assert changes(planned) == {f"{TEMPLATE} nodes": "update"}
    assert planned.older == {}
    demo.up()
    assert demo.ids == before
    newest = ec2.describe_launch_template_versions(
        LaunchTemplateName=template, Versions=["$Latest"]
    )["LaunchTemplateVersions"][0]
    assert newest["LaunchTemplateData"]["UserData"] == data["UserData"]
    assert demo.plan().older == {}


class Refused(Stack):
    """A stack whose first update makes node0 anew, and then fails at node1."""

    asked: ClassVar[list[list[str]]] = []

    def up(
        self,
        resolved: Resolved,
        report: Reporter = silent,
        claims: Claims = NO_CLAIMS,
        replace: Collection[str] = (),
    ) -> Fleet:
        self.asked.append(sorted(replace))
        if len(self.asked) > 1:
            return super().up(resolved, report, claims, replace)
        super().up(resolved, report, claims, ["node0"])
        raise InfraError("node1 failed", "", "", "node1")


def test_after_a_failure_no_machine_is_replaced_twice(
    demo: Upped, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = demo.ids
    monkeypatch.setattr(life, "Stack", Refused)
    demo.up("all")
    assert Refused.asked == [["node0", "node1"], ["node1"]]
    assert set(demo.ids.values()).isdisjoint(before.values())
