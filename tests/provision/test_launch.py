"""A fleet comes whole or not at all: Pulumi's engine against the lab's API, without machines."""

import json
import re
from collections import Counter
from collections.abc import Collection
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import CloudError, GpuctlError, InfraError, Interrupted
from config.polling import Timeouts
from config.progress import Progress, Reporter, silent
from infra.fleet import NO_CLAIMS, Claims, Fleet
from infra.stack.installation import Engine
from infra.stack.stack import Stack
from lab import fault_table
from provision.aws.resources import find
from provision.capacity import claim
from provision.capacity.claim import CAPACITY_TIMES, NoCapacity
from provision.down import down
from provision.nodes.launch import FleetLaunch
from provision.preflight.preflight import resolve
from provision.state import record
from provision.state.store import ClusterStore
from tests.infra.region import Region, administrator, client, stored_resources
from tests.infra.somebodys_network import SomebodysNetwork

pytestmark = [pytest.mark.engine, pytest.mark.thorough]

P4D = "p4d.24xlarge"
ZONES = ["us-east-1a", "us-east-1b", "us-east-1c"]


def room(here: Region, *places: int) -> None:
    """The first zones have so many places for p4d."""
    table = {zone: {P4D: count} for zone, count in zip(ZONES, places, strict=False)}
    here.capacity.write_text(json.dumps(table))


class Upped:
    """Clusters launched in a region, and what was told meanwhile."""

    def __init__(self, here: Region, engine: Engine) -> None:
        self.here, self.engine = here, engine
        self.told: list[Progress] = []
        self.hears: Reporter = silent
        self.zones: list[str] = []
        self.kind: type[Stack] = Stack
        self.fields: dict[str, Any] = {}
        self.replace: tuple[str, ...] = ()
        self.times = CAPACITY_TIMES

    def up(self, nodes: int, **capacity: Any) -> None:
        cluster = Cluster.model_validate(
            {
                "name": "demo",
                "nodes": nodes,
                "instance_type": P4D,
                "capacity": {"zones": tuple(ZONES), **capacity},
                **self.fields,
            }
        )
        stack = self.kind("demo", self.here.target, self.engine)
        resolved = resolve(cluster, ClusterStore(self.here.target))
        before = ClusterStore(self.here.target).record("demo")
        created = before.created if before else datetime.now(UTC)
        plan = stack.preview(resolved, self.replace)
        ClusterStore(self.here.target).write(record.new_record(resolved, created))

        def settled(there: Any) -> None:
            self.zones.append(there.zone)
            ClusterStore(self.here.target).write(record.new_record(there, created))

        def report(told: Progress) -> None:
            self.told.append(told)
            self.hears(told)

        launch = FleetLaunch(
            resolved, plan, stack, self.here.target, settled, self.replace, self.times
        )
        launch.carry_out(report)

    @property
    def running(self) -> list[Any]:
        """The nodes that run."""
        wanted = [
            {"Name": "instance-state-name", "Values": ["pending", "running"]},
            {"Name": "instance-type", "Values": [P4D]},
        ]
        answer = client(self.here.target).describe_instances(Filters=wanted)  # type: ignore[arg-type]
        return [one for r in answer["Reservations"] for one in r["Instances"]]

    @property
    def state(self) -> list[Any]:
        """What Pulumi has stored of the cluster's resources."""
        return stored_resources("demo", self.here.target, self.engine)

    @property
    def provider(self) -> dict[str, Any]:
        """The inputs of the provider with which the cluster was made."""
        (found,) = [one for one in self.state if one["type"] == "pulumi:providers:aws"]
        return dict(found["inputs"])

    @property
    def claims(self) -> list[Any]:
        found = client(self.here.target).describe_capacity_reservations()["CapacityReservations"]
        return sorted(found, key=lambda claim: claim["CreateDate"])

    @property
    def left(self) -> list[str]:
        return [f"{r.kind} {r.id}" for r in find(client(self.here.target), None)]


@pytest.fixture
def fleet(here: Region, engine: Engine) -> Upped:
    return Upped(here, engine)


def test_a_fleet_goes_whole_to_the_first_zone_that_has_room(fleet: Upped) -> None:
    room(fleet.here, 0, 3, 4)
    fleet.up(4)
    assert fleet.zones == ["us-east-1c"]
    assert {one["Placement"]["AvailabilityZone"] for one in fleet.running} == {"us-east-1c"}
    first, claim = fleet.claims
    assert first["State"] == "cancelled"
    assert "PlacementGroupArn" not in first  # nothing existed yet
    assert [one["CapacityReservationId"] for one in fleet.running] == [
        claim["CapacityReservationId"]
    ] * 4
    assert claim["PlacementGroupArn"].endswith(":placement-group/gpuctl-demo")
    assert (claim["State"], claim["EndDateType"]) == ("cancelled", "limited")
    assert (claim["EndDate"] - claim["CreateDate"]).total_seconds() == pytest.approx(1200, abs=5)
    tags = {tag["Key"]: tag["Value"] for tag in claim["Tags"]}
    assert re.fullmatch("[0-9a-f]{8}", tags.pop("gpuctl:id"))
    assert tags == {
        "gpuctl:cluster": "demo",
        "gpuctl:owner": "arn:aws:sts::123456789012:user/moto",
        "Name": "demo-claim",
    }
    assert [(p.subject, p.state, p.detail) for p in fleet.told if p.stage == "capacity"] == [
        ("us-east-1a", "start", "4 x p4d.24xlarge"),
        ("us-east-1a", "failed", "InsufficientInstanceCapacity"),
        ("us-east-1b", "start", "4 x p4d.24xlarge"),
        ("us-east-1b", "failed", "InsufficientInstanceCapacity"),
        ("us-east-1c", "start", "4 x p4d.24xlarge"),
        ("us-east-1c", "done", "4 x p4d.24xlarge"),
        ("us-east-1c", "running", "released: it is claimed again when this exists: NAT gateway"),
        ("us-east-1c", "start", "4 x p4d.24xlarge"),
        ("us-east-1c", "done", "4 x p4d.24xlarge"),
    ]


def test_room_for_three_of_four_launches_nothing(fleet: Upped) -> None:
    room(fleet.here, 3, 3, 3)
    with pytest.raises(GpuctlError) as caught:
        fleet.up(4)
    assert str(caught.value) == (
        "no zone has 4 x p4d.24xlarge whole, so nothing was launched (us-east-1a:"
        " InsufficientInstanceCapacity, us-east-1b: InsufficientInstanceCapacity, us-east-1c:"
        " InsufficientInstanceCapacity); name other zones in capacity.zones, ask for fewer nodes,"
        " or try again later, or set capacity.wait (30m)"
    )
    assert (fleet.running, fleet.claims, fleet.left) == ([], [], [])


def test_the_subnet_of_a_network_that_exists_follows_the_claim(fleet: Upped) -> None:
    theirs = SomebodysNetwork.make(client(fleet.here.target))
    nat = theirs.nat(theirs.public("10.40.0.0/28"))
    zones = dict(zip(ZONES, ("10.40.1.0/24", "10.40.2.0/24", "10.40.3.0/24"), strict=True))
    subnets = {zone: theirs.private(cidr, nat, zone) for zone, cidr in zones.items()}
    before = theirs.all
    fleet.fields = {"network": {"vpc": theirs.vpc}}
    room(fleet.here, 0, 1, 2)
    fleet.up(2)
    assert fleet.zones == ["us-east-1c"]
    assert [one["SubnetId"] for one in fleet.running] == [subnets["us-east-1c"]] * 2
    fleet.up(2)
    assert fleet.zones == ["us-east-1c"]

    down("demo", fleet.here.target, silent)
    assert (fleet.running, fleet.left) == ([], [])
    assert theirs.all == before


def test_a_second_up_claims_nothing_and_a_node_more_claims_one_where_the_others_are(
    fleet: Upped,
) -> None:
    room(fleet.here, 0, 4)
    fleet.up(2)
    first = {one["InstanceId"] for one in fleet.running}
    fleet.up(2)
    assert [one["TotalInstanceCount"] for one in fleet.claims] == [2, 2]
    assert "maxRetries" not in fleet.provider  # the capacity is there, but AWS throttles
    limits = [one["customTimeouts"] for one in fleet.state if one["urn"].endswith("::node0")]
    assert limits == [{"create": 1800, "delete": 1800}]  # the provider's own are 10 and 20 minutes
    fleet.here.capacity.unlink()  # every zone has room, but the cluster lies in one
    fleet.up(3)
    assert [one["TotalInstanceCount"] for one in fleet.claims] == [2, 2, 1]
    assert {one["AvailabilityZone"] for one in fleet.claims} == {"us-east-1b"}
    assert len(fleet.running) == 3
    assert first < {one["InstanceId"] for one in fleet.running}


@pytest.mark.parametrize("nodes", [3, 4])
@pytest.mark.parametrize("strategy", ["cluster", "none"])
def test_new_nodes_have_the_claim_although_other_nodes_run(
    fleet: Upped, nodes: int, strategy: str
) -> None:
    """An open reservation would give its places to the nodes that run."""
    fleet.fields = {"placement": {"strategy": strategy}}
    fleet.up(2)
    before = {one["InstanceId"] for one in fleet.running}
    fleet.up(nodes)
    claim = fleet.claims[-1]
    assert claim["TotalInstanceCount"] == nodes - 2
    new = [one for one in fleet.running if one["InstanceId"] not in before]
    assert [one["CapacityReservationId"] for one in new] == [claim["CapacityReservationId"]] * len(
        new
    )
    assert len(new) == nodes - 2


def test_a_node_that_ended_is_launched_into_its_claim(fleet: Upped) -> None:
    fleet.up(2)
    gone, stays = (one["InstanceId"] for one in fleet.running)
    ec2 = client(fleet.here.target)
    ec2.terminate_instances(InstanceIds=[gone])
    fleet.up(2)
    (new,) = [one for one in fleet.running if one["InstanceId"] != stays]
    assert new["CapacityReservationId"] == fleet.claims[-1]["CapacityReservationId"]


@pytest.mark.parametrize("change", ["all nodes and the group ended", "the file asks for a group"])
def test_a_claim_is_in_the_group_that_a_cluster_with_machines_gets(
    fleet: Upped, change: str
) -> None:
    """Nodes that start in the group would not use a claim outside of it."""
    ec2 = client(fleet.here.target)
    if change == "the file asks for a group":
        fleet.fields = {"placement": {"strategy": "none"}}
    fleet.up(2)
    before = {one["InstanceId"] for one in fleet.running}
    if change == "the file asks for a group":
        fleet.fields = {}
        fleet.up(3)
    else:
        ec2.terminate_instances(InstanceIds=sorted(before))
        ec2.delete_placement_group(GroupName="gpuctl-demo")
        fleet.up(2)
    claim = fleet.claims[-1]
    assert claim["PlacementGroupArn"].endswith(":placement-group/gpuctl-demo")
    new = [one for one in fleet.running if one["InstanceId"] not in before]
    assert {one["CapacityReservationId"] for one in new} == {claim["CapacityReservationId"]}
    assert {one["Placement"]["GroupName"] for one in new} == {"gpuctl-demo"}
    (bastion,) = ec2.describe_instances(
        Filters=[
            {"Name": "tag:Name", "Values": ["demo-bastion"]},
            {"Name": "instance-state-name", "Values": ["running"]},
        ]
    )["Reservations"]
    assert bastion["Instances"][0]["LaunchTime"] < claim["CreateDate"]  # it was left alone


def test_a_refused_claim_leaves_the_cluster_whose_group_it_needed(fleet: Upped) -> None:
    room(fleet.here, 2)
    fleet.fields = {"placement": {"strategy": "none"}}
    fleet.up(2)
    stack = Stack("demo", fleet.here.target, fleet.engine)
    before, machines = stack.fleet(), {one["InstanceId"] for one in fleet.running}
    fleet.fields = {}
    with pytest.raises(NoCapacity):
        fleet.up(3)
    assert before is not None
    assert stack.fleet() == before
    assert {one["InstanceId"] for one in fleet.running} == machines


class Interrupting(Stack):
    """A stack whose `up` Ctrl-C ends."""

    def up(self, *_: Any) -> Fleet:
        raise Interrupted("", "")


def test_a_group_that_somebody_deleted_is_made_again_before_the_claim(fleet: Upped) -> None:
    fleet.kind = Interrupting
    with pytest.raises(Interrupted):
        fleet.up(2)
    client(fleet.here.target).delete_placement_group(GroupName="gpuctl-demo")
    fleet.kind = Stack
    fleet.up(2)
    claim = fleet.claims[-1]
    assert claim["PlacementGroupArn"].endswith(":placement-group/gpuctl-demo")
    assert [one["CapacityReservationId"] for one in fleet.running] == [
        claim["CapacityReservationId"]
    ] * 2


FAST: dict[str, dict[str, Any]] = {
    "network": {"network": {"access": "elastic-ip"}},
    "network and EFS": {
        "network": {"access": "elastic-ip"},
        "storage": {"shared": {"type": "efs"}},
    },
    "no placement group": {
        "network": {"access": "elastic-ip"},
        "placement": {"strategy": "none"},
    },
}


@pytest.mark.parametrize("what", FAST)
def test_a_claim_is_kept_if_nothing_takes_minutes_to_create(fleet: Upped, what: str) -> None:
    room(fleet.here, 0, 2)
    fleet.fields = FAST[what]
    fleet.up(2)
    (claim,) = fleet.claims
    assert {one["CapacityReservationId"] for one in fleet.running} == {
        claim["CapacityReservationId"]
    }
    begun = [p.subject for p in fleet.told if p.state == "start"]
    before = [] if what == "no placement group" else ["aws:ec2/placementGroup:PlacementGroup nodes"]
    assert begun[: len(before) + 2] == [*before, "us-east-1a", "us-east-1b"]


SLOW: dict[str, dict[str, Any]] = {
    "NAT gateway": {},
    "FSx": {"storage": {"shared": {"type": "fsx-lustre"}}},
    "FSx alone": {
        "network": {"access": "elastic-ip"},
        "storage": {"shared": {"type": "fsx-lustre"}},
    },
}


@pytest.mark.parametrize("what", SLOW)
def test_capacity_is_claimed_when_network_and_storage_exist(fleet: Upped, what: str) -> None:
    """A claim costs what its nodes cost, from its creation on."""
    fault_table.write(fleet.here.faults, {"nat-pending": ["2"], "fsx-creating": ["4"]})
    fleet.fields = SLOW[what]
    fleet.up(2)
    first, claim = fleet.claims
    nats = client(fleet.here.target).describe_nat_gateways()["NatGateways"]
    made = [(nat["CreateTime"], 2) for nat in nats]
    files = administrator(fleet.here.target, "fsx").describe_file_systems()["FileSystems"]
    made += [(file["CreationTime"], 4) for file in files]
    assert len(made) == (2 if what == "FSx" else 1)
    for created, seconds in made:
        assert first["CreateDate"] < created
        # AWS's times have no fractions of a second.
        assert claim["CreateDate"] >= created + timedelta(seconds=seconds - 1)
    assert [one["CapacityReservationId"] for one in fleet.running] == [
        claim["CapacityReservationId"]
    ] * 2


def test_network_and_storage_follow_capacity_that_moves_to_another_zone(fleet: Upped) -> None:
    room(fleet.here, 2, 0, 0)

    def move(told: Progress) -> None:
        if told.detail.startswith("released"):
            room(fleet.here, 0, 2, 0)

    fleet.hears, fleet.fields = move, SLOW["FSx"]
    fleet.up(2)
    assert fleet.zones == ["us-east-1a", "us-east-1b"]
    assert all_in(fleet, "us-east-1b")
    assert {one["State"] for one in fleet.claims} == {"cancelled"}


def test_a_claim_that_has_moved_twice_is_kept_while_the_network_moves(fleet: Upped) -> None:
    room(fleet.here, 2, 0, 0)

    def move(told: Progress) -> None:
        if told.detail.startswith("released"):
            room(fleet.here, 0, 2, 0)
        elif (told.stage, told.subject, told.state) == ("capacity", "us-east-1b", "done"):
            room(fleet.here, 0, 0, 2)

    fleet.hears = move
    fleet.up(2)
    assert fleet.zones == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert all_in(fleet, "us-east-1c")
    assert [one["AvailabilityZone"][-1] for one in fleet.claims] == ["a", "b", "c"]


def all_in(fleet: Upped, zone: str) -> bool:
    """Whether nodes and subnets are in this zone alone, with one NAT gateway and file system."""
    ec2 = client(fleet.here.target)
    subnets = ec2.describe_subnets()["Subnets"]
    where = {one["Placement"]["AvailabilityZone"] for one in fleet.running}
    where |= {subnet["AvailabilityZone"] for subnet in subnets}
    kinds = Counter(name.partition(" ")[0] for name in fleet.left)
    return where == {zone} and kinds["NAT"] == 1 and kinds["FSx"] <= 1


def test_more_nodes_than_there_is_room_for_touch_no_node_that_runs(fleet: Upped) -> None:
    room(fleet.here, 2, 9, 9)
    fleet.up(2)
    before = {one["InstanceId"] for one in fleet.running}
    with pytest.raises(claim.NoCapacity, match=r"^no zone has 2 x p4d.24xlarge whole"):
        fleet.up(4)
    assert {one["InstanceId"] for one in fleet.running} == before


def test_somebody_elses_cluster_of_the_same_name_is_left_alone(
    fleet: Upped, tmp_path: Path
) -> None:
    """The second one had looked before the first one's existed."""
    fleet.up(2)
    running, there = [one["InstanceId"] for one in fleet.running], fleet.left
    target = replace(fleet.here.target, state=tmp_path / "another person's")
    other = Upped(replace(fleet.here, target=target), fleet.engine)
    with pytest.raises(InfraError) as refused:
        other.up(1)
    assert refused.value.code.endswith(".Duplicate"), refused.value
    assert ([one["InstanceId"] for one in fleet.running], fleet.left) == (running, there)


def test_wait_tries_the_zones_again_and_tells(fleet: Upped) -> None:
    fleet.times = replace(CAPACITY_TIMES, rounds=Timeouts(0, 0.05))
    room(fleet.here, 0, 0, 0)

    def open_a_zone(told: Progress) -> None:
        if told.subject == "all zones":  # the first round is over
            room(fleet.here, 0, 2, 0)

    fleet.hears = open_a_zone
    fleet.up(2, wait="1h")
    # Network and placement group wait in the planned zone, and follow the capacity.
    assert fleet.zones == ["us-east-1a", "us-east-1b"]
    assert {one["Placement"]["AvailabilityZone"] for one in fleet.running} == {"us-east-1b"}
    said = [p.detail for p in fleet.told if p.subject == "all zones"]
    assert said
    assert said[0].startswith("no zone has 2 x p4d.24xlarge: next try in ")


def test_wait_that_is_over_says_what_was_tried(fleet: Upped) -> None:
    fleet.times = replace(CAPACITY_TIMES, rounds=Timeouts(0, 0.2))
    room(fleet.here, 1, 0, 0)
    with pytest.raises(claim.NoCapacity) as caught:
        fleet.up(2, wait="2s")
    assert caught.value.code == "InsufficientInstanceCapacity"
    assert caught.value.message.startswith(
        "no zone has 2 x p4d.24xlarge whole within 2s, so nothing was launched (us-east-1a: Insuf"
    )
    assert fleet.left == []


def test_spot_comes_whole_in_one_zone_and_leaves_nothing_in_others(fleet: Upped) -> None:
    room(fleet.here, 0, 1, 2)
    fleet.up(2, type="spot")
    assert fleet.zones == ["us-east-1a", "us-east-1b", "us-east-1c"]
    assert fleet.provider["maxRetries"] == "5"  # 25 would try for 50 minutes in each zone on AWS
    assert [one["Placement"]["AvailabilityZone"] for one in fleet.running] == ["us-east-1c"] * 2
    assert {one["InstanceLifecycle"] for one in fleet.running} == {"spot"}
    assert fleet.claims == []
    assert sum(name.startswith("VPC") for name in fleet.left) == 1


def test_more_spot_nodes_that_are_refused_leave_those_that_run_alone(fleet: Upped) -> None:
    room(fleet.here, 3, 9, 9)  # one of the two more finds room, the other does not
    fleet.up(2, type="spot")
    before = {one["InstanceId"]: one["LaunchTime"] for one in fleet.running}
    with pytest.raises(InfraError) as caught:
        fleet.up(4, type="spot")
    assert caught.value.code == "InsufficientInstanceCapacity"
    assert str(caught.value).endswith(
        "name other zones in capacity.zones, ask for fewer nodes, or try again later; the 2 nodes"
        " that ran before keep running"
    )
    assert {one["InstanceId"]: one["LaunchTime"] for one in fleet.running} == before
    room(fleet.here, 4, 9, 9)
    fleet.up(4, type="spot")
    assert len(fleet.running) == 4
    assert before.items() < {one["InstanceId"]: one["LaunchTime"] for one in fleet.running}.items()
    assert {one["Placement"]["AvailabilityZone"] for one in fleet.running} == {"us-east-1a"}


def test_a_failed_node_more_rolls_back_nothing_that_is_healthy(fleet: Upped) -> None:
    fleet.up(1)
    before = {one["InstanceId"] for one in fleet.running}
    fleet.kind, Lossy.losses, Lossy.code = Lossy, 3, "InternalError"
    with pytest.raises(InfraError, match=r"^node1 failed: it is terminated$"):
        fleet.up(3)
    there = {one["InstanceId"] for one in fleet.running}
    assert before < there  # and node2, which came
    assert len(there) == 2
    fleet.up(3)  # what is missing is made, beside those
    assert there < {one["InstanceId"] for one in fleet.running}
    assert len(fleet.running) == 3


def test_a_block_takes_the_nodes_and_needs_no_group(fleet: Upped) -> None:
    room(fleet.here, 0, 0, 0)  # a block's room is its own
    block = bought(fleet.here, datetime.now(UTC) + timedelta(seconds=40))  # the plan is made before
    fleet.up(2, type="capacity-block", id=block, wait="2m", zones=())
    assert [one["CapacityReservationId"] for one in fleet.running] == [block] * 2
    assert not any(one["Placement"].get("GroupName") for one in fleet.running)
    waited = [p.detail for p in fleet.told if p.subject == block]
    assert waited
    assert waited[0].startswith("begins ")


def in_block(fleet: Upped, **fields: Any) -> list[str]:
    """Up in a block that began a minute ago; the reservations of the nodes that run."""
    if not fleet.claims:
        bought(fleet.here, datetime.now(UTC) - timedelta(minutes=1))
    (block,) = fleet.claims
    fleet.fields = fields
    fleet.up(2, type="capacity-block", id=block["CapacityReservationId"], zones=())
    assert {one["CapacityReservationId"] for one in fleet.running} == {
        block["CapacityReservationId"]
    }
    return [one["InstanceId"] for one in fleet.running]


@pytest.fixture
def waits(fleet: Upped) -> list[str]:
    """What is told about waiting for places in a block, which are free after the first of it."""
    fleet.times = replace(CAPACITY_TIMES, cleanup=Timeouts(1200, 0.2))
    fault_table.write(fleet.here.faults, {"block-cleanup": ["600"]})
    waits: list[str] = []

    def hear(told: Progress) -> None:
        if told.subject.startswith("cr-"):
            waits.append(told.detail)
            fleet.here.faults.unlink(missing_ok=True)

    fleet.hears = hear
    return waits


def test_a_node_in_a_block_waits_for_the_place_of_the_ended_one(
    fleet: Upped, waits: list[str]
) -> None:
    before = in_block(fleet)
    client(fleet.here.target).terminate_instances(InstanceIds=before[:1])
    after = in_block(fleet)
    assert len(after) == 2
    assert before[1] in after
    assert re.fullmatch(
        r"has 0 of 2 places free, 1 is needed: waits until .* UTC at most, at \$43\.99 an hour for"
        " the cluster",
        waits[0],
    )


def test_nodes_in_a_block_that_are_replaced_wait_for_the_places_of_the_old_ones(
    fleet: Upped, waits: list[str]
) -> None:
    before = in_block(fleet)
    fleet.replace = ("node0", "node1")
    after = in_block(fleet)
    assert len(after) == 2
    assert not set(before) & set(after)
    assert waits[0].startswith("has 0 of 2 places free, 2 are needed: waits until ")


def test_a_place_in_a_block_that_is_never_free_ends_the_wait(fleet: Upped) -> None:
    before = in_block(fleet)
    fault_table.write(fleet.here.faults, {"block-cleanup": ["600"]})
    client(fleet.here.target).terminate_instances(InstanceIds=before)
    fleet.times = replace(CAPACITY_TIMES, cleanup=Timeouts(0, 1))
    (block,) = fleet.claims
    with pytest.raises(CloudError) as caught:
        in_block(fleet)
    assert str(caught.value) == (
        f"{block['CapacityReservationId']} has 0 of 2 places free, 2 are needed, 0 minutes after"
        " the first request; repeat the command later; `gpuctl capacity p4d.24xlarge` shows its"
        " places"
    )


class Lossy(Stack):
    """Launches after which AWS ended node1, `losses` times."""

    losses = 0
    code = "InternalError"

    def up(
        self,
        resolved: Resolved,
        report: Reporter = silent,
        claims: Claims = NO_CLAIMS,
        replace: Collection[str] = (),
    ) -> Fleet:
        fleet = super().up(resolved, report, claims, replace)
        if Lossy.losses == 0:
            return fleet
        Lossy.losses -= 1
        ec2 = client(self._target)
        (node,) = [node for node in fleet.nodes if node.name == "node1"]
        ec2.terminate_instances(InstanceIds=[node.instance_id])
        raise InfraError("node1 failed: it is terminated", "", Lossy.code, "node1")


def test_a_node_that_failed_is_launched_again_beside_the_others(fleet: Upped) -> None:
    fleet.kind, Lossy.losses, Lossy.code = Lossy, 2, ""
    fleet.up(3)
    assert len(fleet.running) == 3
    _, claim_ = fleet.claims
    assert {one["CapacityReservationId"] for one in fleet.running} == {
        claim_["CapacityReservationId"]
    }
    assert [p.detail for p in fleet.told if p.subject == "node1" and p.stage == "capacity"] == [
        "it failed: launched again"
    ] * 2
    ids = {one["LaunchTime"] for one in fleet.running}
    assert len(ids) > 1  # the healthy ones were not touched


@pytest.mark.parametrize(("losses", "code"), [(3, "InternalError"), (1, "InvalidParameterValue")])
def test_a_fleet_that_cannot_be_filled_is_removed_whole(
    fleet: Upped, losses: int, code: str
) -> None:
    fleet.kind, Lossy.losses, Lossy.code = Lossy, losses, code
    with pytest.raises(InfraError, match=r"^node1 failed: it is terminated$"):
        fleet.up(2)
    assert Lossy.losses == 0
    assert (fleet.running, fleet.left) == ([], [])


def bought(here: Region, start: datetime, count: int = 2) -> str:
    """A block of a day in us-east-1d."""
    ec2 = client(here.target)
    offers = ec2.describe_capacity_block_offerings(
        InstanceType=P4D, InstanceCount=count, CapacityDurationHours=24, StartDateRange=start
    )["CapacityBlockOfferings"]
    (offer,) = [o for o in offers if o["AvailabilityZone"] == "us-east-1d"]
    answer = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    return str(answer["CapacityReservation"]["CapacityReservationId"])
