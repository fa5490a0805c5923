"""Tags that others add to a cluster: left alone by `up` and `heal`, named by `drift`."""

from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.errors import BrokenNodes
from config.progress import silent
from infra.stack.changes import Change
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from provision import healing
from provision import up as life
from provision.drift import ForeignTag, drift
from provision.nodes.spares import terminate
from provision.state.store import ClusterStore
from tests.infra.region import Region, client
from tests.provision.unbooted import nothing_boots

pytestmark = [pytest.mark.engine, pytest.mark.thorough]

FILE: dict[str, Any] = {"name": "demo", "nodes": 2, "instance_type": "c6i.large"}


@pytest.fixture
def cluster(here: Region, engine: Engine) -> Cluster:
    """A cluster with the tag `team`; nobody waits for its machines."""
    del engine  # it exists
    cluster = Cluster.model_validate({**FILE, "tags": {"team": "ml"}})
    up(cluster, here)
    return cluster


def up(cluster: Cluster, here: Region) -> None:
    life.up(life.plan(cluster, here.target, silent), here.target, silent, boot=nothing_boots)


def everything(here: Region) -> list[str]:
    """The ids of the cluster's resources in EC2 with tags, volumes and interfaces included."""
    pages = (
        client(here.target)
        .get_paginator("describe_tags")
        .paginate(Filters=[{"Name": "key", "Values": ["gpuctl:cluster"]}])
    )
    return sorted({tag["ResourceId"] for page in pages for tag in page["Tags"]})


def tag(here: Region, ids: list[str], **tags: str) -> None:
    client(here.target).create_tags(
        Resources=ids, Tags=[{"Key": key, "Value": value} for key, value in tags.items()]
    )


def values(here: Region, key: str) -> dict[str, str]:
    """The value of the tag on each resource that has it."""
    pages = (
        client(here.target)
        .get_paginator("describe_tags")
        .paginate(Filters=[{"Name": "key", "Values": [key]}])
    )
    return {tag["ResourceId"]: tag["Value"] for page in pages for tag in page["Tags"]}


def changes(plan: life.FleetPlan) -> list[Change]:
    return [change for change in plan.plan.changes if change.op != "same"]


def vpc(here: Region) -> str:
    [found] = client(here.target).describe_vpcs()["Vpcs"]
    return found["VpcId"]


def test_a_policys_tag_on_everything_is_left_alone_by_up_and_drift(
    here: Region, cluster: Cluster
) -> None:
    ids = everything(here)
    tag(here, ids, CostCenter="4711")
    found = drift("demo", here.target, silent)
    assert found.is_empty
    assert {one.key for one in found.foreign_tags} == {"CostCenter"}
    assert ForeignTag(f"VPC {vpc(here)}", "CostCenter", "4711") in found.foreign_tags
    named = {one.resource.rpartition(" ")[2] for one in found.foreign_tags}
    # Key pair and placement group are known by their names; the claim has ended.
    assert named >= {one for one in ids if not one.startswith(("key-", "pg-", "cr-"))}
    assert {"key pair gpuctl-demo", "placement group gpuctl-demo"} <= {
        one.resource for one in found.foreign_tags
    }

    assert changes(life.plan(cluster, here.target, silent)) == []
    # A change of the file reaches the same resources, and their foreign tags stay.
    changed = cluster.model_copy(update={"tags": {"team": "ml", "phase": "2"}})
    plan = life.plan(changed, here.target, silent)
    lines = {line for change in plan.plan.changes for line in change.details}
    assert not any("CostCenter" in line for line in lines)
    up(cluster, here)
    assert values(here, "CostCenter") == dict.fromkeys(ids, "4711")
    assert drift("demo", here.target, silent).is_empty


def test_a_node_that_heal_makes_again_has_no_foreign_tags_and_the_others_keep_theirs(
    here: Region, cluster: Cluster
) -> None:
    inventory = life.up(
        life.plan(cluster, here.target, silent), here.target, silent, boot=nothing_boots
    )
    tagged = everything(here)
    tag(here, tagged, CostCenter="4711")
    first, gone = inventory.nodes
    tag(here, [gone.instance_id], ticket="broken")

    healed = healing.replace_nodes("demo", [gone], here.target, silent, boot=nothing_boots)
    made = healed.nodes[1].instance_id
    assert made != gone.instance_id
    assert healed.nodes[0].instance_id == first.instance_id
    left = [resource for resource in everything(here) if resource in tagged]
    assert {first.instance_id, vpc(here), group(here)} <= {*left}
    assert values(here, "CostCenter").items() >= dict.fromkeys(left, "4711").items()
    assert made not in values(here, "CostCenter")
    assert made not in values(here, "ticket")
    # It is no difference that the machines' tags differ.
    found = drift("demo", here.target, silent)
    assert found.is_empty
    named = {foreign.resource for foreign in found.foreign_tags}
    assert f"instance {first.instance_id}" in named
    assert f"instance {made}" not in named
    assert changes(life.plan(cluster, here.target, silent)) == []

    # The policy finds the new machine, and the other one is made again.
    tag(here, [made], CostCenter="4712")
    again = healing.replace_nodes(
        "demo", [healed.nodes[0]], here.target, silent, boot=nothing_boots
    )
    assert again.nodes[1].instance_id == made
    assert values(here, "CostCenter")[made] == "4712"
    assert drift("demo", here.target, silent).is_empty


def test_a_policy_that_tags_while_heal_runs_fails_nothing(
    here: Region, cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    def terminate_and_tag(*arguments: Any) -> None:
        terminate(*arguments)
        tag(here, stay, CostCenter="4711")

    def tag_and_make_again(*arguments: Any) -> Any:
        tag(here, stay, late="yes")
        return life.up(*arguments)

    inventory = life.up(
        life.plan(cluster, here.target, silent), here.target, silent, boot=nothing_boots
    )
    monkeypatch.setattr("provision.healing.terminate", terminate_and_tag)
    monkeypatch.setattr("provision.healing.up", tag_and_make_again)
    first = inventory.nodes[0].instance_id
    stay = [first, vpc(here), group(here)]
    healed = healing.replace_nodes(
        "demo", [inventory.nodes[1]], here.target, silent, boot=nothing_boots
    )
    assert healed.nodes[0].instance_id == first
    assert healed.nodes[1].instance_id != inventory.nodes[1].instance_id
    for key, value in {"CostCenter": "4711", "late": "yes"}.items():
        assert values(here, key) == dict.fromkeys(stay, value)
    assert drift("demo", here.target, silent).is_empty


def test_a_tag_of_an_earlier_file_is_removed_and_a_foreign_one_stays(
    here: Region, cluster: Cluster
) -> None:
    groups = client(here.target).describe_security_groups(
        Filters=[{"Name": "tag:gpuctl:cluster", "Values": ["demo"]}]
    )["SecurityGroups"]
    places = [groups[0]["GroupId"], vpc(here)]
    tag(here, places, by="hand", **{"a.b:c/d": "1, 2"})
    assert vpc(here) in values(here, "team")
    bare = cluster.model_copy(update={"tags": {}})

    # An `up` that fails after the record was written has removed nothing yet.
    record = ClusterStore(here.target).record("demo")
    assert record is not None
    planned = life.plan(bare, here.target, silent)
    ClusterStore(here.target).write(
        record.model_copy(update={"resolved": planned.resolved, "status": "failed"})
    )

    up(bare, here)
    assert not [one for one in values(here, "team") if one.startswith(("vpc-", "sg-", "subnet-"))]
    assert values(here, "by") == dict.fromkeys(places, "hand")
    assert values(here, "a.b:c/d") == dict.fromkeys(places, "1, 2")
    # When it is removed, the next `up` removes no other, and nobody misses it.
    client(here.target).delete_tags(Resources=[places[0]], Tags=[{"Key": "by"}])
    found = drift("demo", here.target, silent)
    assert found.is_empty
    assert [one.resource for one in found.foreign_tags if one.key == "by"] == [f"VPC {places[1]}"]
    assert changes(life.plan(bare, here.target, silent)) == []


def test_a_foreign_key_that_the_file_adds_later_is_the_files(
    here: Region, cluster: Cluster
) -> None:
    tag(here, [vpc(here)], owner="policy")
    up(cluster, here)
    assert values(here, "owner") == {vpc(here): "policy"}
    mine = cluster.model_copy(update={"tags": {"team": "ml", "owner": "me"}})
    up(mine, here)
    assert values(here, "owner")[vpc(here)] == "me"
    found = drift("demo", here.target, silent)
    assert (found.changes, found.unknown, found.foreign_tags) == ((), (), ())
    # From now on a change of it is a difference, and what the file drops is removed.
    tag(here, [vpc(here)], owner="policy")
    [change] = drift("demo", here.target, silent).changes
    assert change.details == ('tags.owner: "me" -> "policy"',)
    up(cluster, here)
    assert vpc(here) not in values(here, "owner")


def test_a_policy_that_tags_while_up_creates_breaks_neither_plan_nor_tags(
    here: Region, engine: Engine, monkeypatch: pytest.MonkeyPatch
) -> None:
    del engine  # it exists
    prepare, prepared = Stack.prepare, list[str]()

    def prepare_and_tag(self: Stack, *arguments: Any) -> None:
        prepare(self, *arguments)
        prepared.extend(everything(here))
        tag(here, prepared, CostCenter="4711")

    monkeypatch.setattr(Stack, "prepare", prepare_and_tag)
    cluster = Cluster.model_validate(FILE)
    up(cluster, here)
    assert group(here) in prepared
    assert values(here, "CostCenter") == dict.fromkeys(prepared, "4711")
    # The policy tags the rest between a plan and its `up`.
    plan = life.plan(cluster.model_copy(update={"nodes": 3}), here.target, silent)
    ids = everything(here)
    tag(here, ids, CostCenter="4711")
    assert len(life.up(plan, here.target, silent, boot=nothing_boots).nodes) == 3
    assert values(here, "CostCenter").items() >= dict.fromkeys(ids, "4711").items()


def group(here: Region) -> str:
    [found] = client(here.target).describe_placement_groups()["PlacementGroups"]
    return found["GroupId"]


def test_a_policys_tags_stay_where_a_spare_attempt_replaces_a_machine(
    here: Region, engine: Engine
) -> None:
    del engine  # it exists
    tagged: list[str] = []

    def break_once(*arguments: Any, **options: Any) -> Any:
        if not tagged:
            tagged.extend(everything(here))
            tag(here, tagged, CostCenter="4711")
            raise BrokenNodes("node1 (10.0.0.2): GPUs: 7", "see", {"node1": "GPUs: 7"})
        return nothing_boots(*arguments, **options)

    cluster = Cluster.model_validate({**FILE, "capacity": {"spare_attempts": 1}})
    plan = life.plan(cluster, here.target, silent)
    inventory = life.up(plan, here.target, silent, boot=break_once)
    assert [one.name for one in inventory.replaced] == ["node1"]
    left = set(tagged) & set(everything(here))  # the interfaces of the machine ended with it
    assert {vpc(here), group(here), inventory.nodes[0].instance_id} <= left
    assert values(here, "CostCenter").items() >= dict.fromkeys(left, "4711").items()
