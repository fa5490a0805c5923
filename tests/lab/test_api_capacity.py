"""Capacity reservations and blocks: what they hold, who runs in them, with AWS's errors."""

import json
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from tests.lab.world import World, refused, world

pytestmark = pytest.mark.slow

P4D = "p4d.24xlarge"
EXCEEDED = (
    "The requested reservation does not have sufficient compatible and available capacity for this"
    " request."
)
FULL = (
    "We currently do not have sufficient p4d.24xlarge capacity in the Availability Zone you"
    " requested (us-east-1a). Our system will be working on provisioning additional capacity."
)


@pytest.fixture
def region(tmp_path: Path) -> Iterator[World]:
    with world(None, tmp_path / "capacity.json") as made:
        yield made


def claim(region: World, count: int, **more: Any) -> str:
    answer = region.ec2.create_capacity_reservation(
        **{
            "InstanceType": P4D,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": "us-east-1a",
            "InstanceCount": count,
            **more,
        }
    )
    return str(answer["CapacityReservation"]["CapacityReservationId"])


def shown(region: World, reservation: str) -> dict[str, Any]:
    answer = region.ec2.describe_capacity_reservations(CapacityReservationIds=[reservation])
    found: dict[str, Any] = answer["CapacityReservations"][0]
    return found


def counts(region: World, reservation: str) -> tuple[str, int, int]:
    told = shown(region, reservation)
    return told["State"], told["TotalInstanceCount"], told["AvailableInstanceCount"]


def room_for(tmp_path: Path, count: int) -> None:
    (tmp_path / "capacity.json").write_text(json.dumps({"us-east-1a": {P4D: count}}))


def test_a_reservation_holds_room_that_only_its_own_use(region: World, tmp_path: Path) -> None:
    room_for(tmp_path, 3)
    with refused("InsufficientInstanceCapacity", FULL, status=500):
        claim(region, 4)
    region.ec2.create_placement_group(GroupName="demo")
    (group,) = region.ec2.describe_placement_groups()["PlacementGroups"]
    held = claim(region, 2, PlacementGroupArn=group["GroupArn"])
    assert counts(region, held) == ("active", 2, 2)
    (outside,) = region.run()
    with refused("InsufficientInstanceCapacity", FULL, status=500):
        region.run()
    inside = [
        *region.run(Placement={"GroupName": "demo"}),
        *region.run(Placement={"GroupName": "demo"}),
    ]
    assert [region.instance(i).get("CapacityReservationId") for i in (outside, *inside)] == [
        None,
        held,
        held,
    ]
    assert counts(region, held) == ("active", 2, 0)


def test_a_cancelled_reservation_leaves_its_instances_running(
    region: World, tmp_path: Path
) -> None:
    room_for(tmp_path, 2)
    held = claim(region, 2)
    (inside,) = region.run()
    region.ec2.cancel_capacity_reservation(CapacityReservationId=held)
    assert counts(region, held)[0] == "cancelled"
    assert region.state(inside) == "running"
    assert len(region.run()) == 1  # the other place is free for all
    with refused("InsufficientInstanceCapacity", FULL, status=500):
        region.run()


def test_running_instances_take_the_places_of_an_open_reservation(region: World) -> None:
    region.ec2.create_placement_group(GroupName="demo")
    (group,) = region.ec2.describe_placement_groups()["PlacementGroups"]
    outside = region.run()
    before = region.run(2, Placement={"GroupName": "demo"})
    held = claim(region, 2, PlacementGroupArn=group["GroupArn"])
    assert counts(region, held) == ("active", 2, 0)
    (new,) = region.run(Placement={"GroupName": "demo"})
    inside = [region.instance(i).get("CapacityReservationId") for i in (*outside, *before, new)]
    assert inside == [None, held, held, None]
    region.ec2.cancel_capacity_reservation(CapacityReservationId=held)
    again = claim(region, 3, PlacementGroupArn=group["GroupArn"])
    assert counts(region, again) == ("active", 3, 0)


def test_running_instances_take_no_place_of_a_reservation_that_is_not_theirs(
    region: World,
) -> None:
    """One that must be named, of another tenancy or group; and instances that want none."""
    group = {"GroupName": _group(region)}
    region.run(1, Placement=group)
    region.run(1, InstanceMarketOptions={"MarketType": "spot"})
    region.run(1, CapacityReservationSpecification={"CapacityReservationPreference": "none"})
    named = claim(region, 1, InstanceMatchCriteria="targeted")
    target = {"CapacityReservationTarget": {"CapacityReservationId": named}}
    region.run(1, CapacityReservationSpecification=target)
    region.ec2.cancel_capacity_reservation(CapacityReservationId=named)
    for more in ({}, {"Tenancy": "dedicated"}, {"InstanceMatchCriteria": "targeted"}):
        assert counts(region, claim(region, 2, **more)) == ("active", 2, 2)


def test_a_claim_is_made_once_tagged_and_ends_by_itself(region: World) -> None:
    tags = [{"Key": "gpuctl:cluster", "Value": "demo"}]
    specification = [{"ResourceType": "capacity-reservation", "Tags": tags}]
    end = datetime.now(UTC) - timedelta(seconds=1)
    arguments: dict[str, Any] = {
        "ClientToken": "one",
        "EndDate": end,
        "EndDateType": "limited",
        "TagSpecifications": specification,
    }
    held = claim(region, 2, **arguments)
    assert claim(region, 2, **arguments) == held
    (found,) = region.ec2.describe_capacity_reservations()["CapacityReservations"]
    assert (found["Tags"], found["State"]) == (tags, "expired")
    filters = [{"Name": "state", "Values": ["active"]}]
    assert not region.ec2.describe_capacity_reservations(Filters=filters)["CapacityReservations"]


def test_what_cannot_be_claimed_is_refused(region: World) -> None:
    with refused(
        "Unsupported",
        "Your requested instance type (p6-b200.48xlarge) is not supported in your requested"
        " Availability Zone (us-east-1a).",
    ):
        claim(region, 1, InstanceType="p6-b200.48xlarge")
    with refused("InvalidPlacementGroup.Unknown", "The Placement Group 'nowhere' is unknown."):
        claim(region, 1, PlacementGroupArn="arn:aws:ec2:us-east-1:1:placement-group/nowhere")
    unknown = "The Capacity Reservation ID 'cr-0' does not exist."
    with refused("InvalidCapacityReservationId.NotFound", unknown):
        region.ec2.cancel_capacity_reservation(CapacityReservationId="cr-0")


def test_a_launch_that_names_a_reservation_runs_there_or_not_at_all(region: World) -> None:
    held = claim(region, 1, InstanceMatchCriteria="targeted")
    target = {"CapacityReservationTarget": {"CapacityReservationId": held}}
    (outside,) = region.run()
    assert "CapacityReservationId" not in region.instance(outside)
    (inside,) = region.run(CapacityReservationSpecification=target)
    assert region.instance(inside)["CapacityReservationId"] == held
    with refused("ReservationCapacityExceeded", EXCEEDED):
        region.run(CapacityReservationSpecification=target)
    with refused("InsufficientInstanceCapacity", FULL, status=500):
        region.run(CapacityReservationSpecification=target, Placement={"GroupName": _group(region)})
    with refused("ReservationCapacityExceeded", EXCEEDED):
        region.run(
            InstanceType="t3.small",
            SubnetId=region.subnet,
            CapacityReservationSpecification=target,
        )


def test_neither_spot_nor_another_tenancy_uses_a_reservation(region: World) -> None:
    held = claim(region, 1, Tenancy="dedicated")
    target = {"CapacityReservationTarget": {"CapacityReservationId": held}}
    with refused("ReservationCapacityExceeded", EXCEEDED):
        region.run(CapacityReservationSpecification=target)
    (outside,) = region.run()
    assert "CapacityReservationId" not in region.instance(outside)
    with refused(
        "InvalidParameterCombination",
        f"The Capacity Reservation '{held}' and MarketType spot do not go together.",
    ):
        region.run(
            CapacityReservationSpecification=target, InstanceMarketOptions={"MarketType": "spot"}
        )
    (inside,) = region.run(
        CapacityReservationSpecification=target, Placement={"Tenancy": "dedicated"}
    )
    assert region.instance(inside)["CapacityReservationId"] == held


def _group(region: World) -> str:
    region.ec2.create_placement_group(GroupName="other")
    return "other"


def block(region: World, start: datetime) -> str:
    offerings = region.ec2.describe_capacity_block_offerings(
        InstanceType=P4D, InstanceCount=2, CapacityDurationHours=24, StartDateRange=start
    )["CapacityBlockOfferings"]
    offer = next(o for o in offerings if o["AvailabilityZone"] == "us-east-1a")
    answer = region.ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offer["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    return str(answer["CapacityReservation"]["CapacityReservationId"])


def test_a_block_takes_launches_from_its_start_to_half_an_hour_before_its_end(
    region: World,
) -> None:
    now = datetime.now(UTC)
    running = block(region, now - timedelta(hours=1))
    market = {"MarketType": "capacity-block"}

    def launch(reservation: str) -> list[str]:
        target = {"CapacityReservationTarget": {"CapacityReservationId": reservation}}
        return region.run(2, CapacityReservationSpecification=target, InstanceMarketOptions=market)

    assert len(launch(running)) == 2
    assert (shown(region, running)["ReservationType"], counts(region, running)) == (
        "capacity-block",
        ("active", 2, 0),
    )
    early = block(region, now + timedelta(hours=1))
    assert shown(region, early)["State"] == "scheduled"
    late = block(region, now - timedelta(hours=23, minutes=45))
    for reservation in (early, late):
        with refused("ReservationCapacityExceeded", EXCEEDED):
            launch(reservation)
    with refused("UnsupportedOperation", "A Capacity Block cannot be cancelled."):
        region.ec2.cancel_capacity_reservation(CapacityReservationId=early)
    with refused(
        "InvalidParameterCombination",
        f"The Capacity Reservation '{running}' and MarketType on-demand do not go together.",
    ):
        region.run(
            CapacityReservationSpecification={
                "CapacityReservationTarget": {"CapacityReservationId": running}
            }
        )


def test_offerings_and_spot_prices_per_zone(region: World) -> None:
    offers = region.ec2.describe_capacity_block_offerings(
        InstanceType=P4D, InstanceCount=2, CapacityDurationHours=24
    )["CapacityBlockOfferings"]
    assert all(o["EndDate"] - o["StartDate"] == timedelta(hours=24) for o in offers)
    assert float(offers[0]["UpfrontFee"]) > 0
    none = region.ec2.describe_capacity_block_offerings(
        InstanceType="t3.small", InstanceCount=2, CapacityDurationHours=24
    )
    assert none["CapacityBlockOfferings"] == []
    prices = region.ec2.describe_spot_price_history(InstanceTypes=[P4D])["SpotPriceHistory"]
    assert {p["AvailabilityZone"] for p in prices} == {o["AvailabilityZone"] for o in offers}
