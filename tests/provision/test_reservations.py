"""A reservation or block of the user's own is checked before anything is made, in one line each."""

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Reservation
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.clients import client
from provision.capacity.reservations import find_reservation
from tests.infra.region import CREDENTIALS, Worlds

P4D = "p4d.24xlarge"


@pytest.fixture
def there(tmp_path: Path, worlds: Worlds) -> Iterator[Target]:
    with worlds.api(tmp_path) as (url, _):
        yield Target("test", "us-east-1", tmp_path, endpoint=url, environment=CREDENTIALS)


def asked(
    there: Target, reservation: str, kind: str = "reservation", **fields: Any
) -> tuple[Reservation, str] | None:
    capacity = {"type": kind, "id": reservation} | fields.pop("capacity", {})
    cluster = Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": P4D, "capacity": capacity, **fields}
    )
    return find_reservation(client(there, "ec2"), cluster)


def made(there: Target, count: int = 2, **more: Any) -> str:
    answer = client(there, "ec2").create_capacity_reservation(
        **{
            "InstanceType": P4D,
            "InstancePlatform": "Linux/UNIX",
            "AvailabilityZone": "us-east-1b",
            "InstanceCount": count,
            "InstanceMatchCriteria": "targeted",
            **more,
        }
    )
    return str(answer["CapacityReservation"]["CapacityReservationId"])


def block(there: Target, start: datetime) -> str:
    ec2 = client(there, "ec2")
    offers = ec2.describe_capacity_block_offerings(
        InstanceType=P4D, InstanceCount=2, CapacityDurationHours=24, StartDateRange=start
    )["CapacityBlockOfferings"]
    answer = ec2.purchase_capacity_block(
        CapacityBlockOfferingId=offers[0]["CapacityBlockOfferingId"], InstancePlatform="Linux/UNIX"
    )
    return str(answer["CapacityReservation"]["CapacityReservationId"])


def complaint(there: Target, reservation: str, kind: str = "reservation", **fields: Any) -> str:
    with pytest.raises(InputError) as caught:
        asked(there, reservation, kind, **fields)
    return str(caught.value)


def test_a_reservation_that_fits_gives_its_zone_and_group(there: Target) -> None:
    client(there, "ec2").create_placement_group(GroupName="near", Strategy="cluster")
    (group,) = client(there, "ec2").describe_placement_groups()["PlacementGroups"]
    one = made(there, PlacementGroupArn=group["GroupArn"])
    answer = asked(there, one)
    assert answer is not None
    found, zone = answer
    assert (found.id, found.is_block, found.group, found.ends, zone) == (
        one,
        False,
        "near",
        None,
        "us-east-1b",
    )


def test_what_does_not_fit_is_told_in_one_line(there: Target) -> None:
    small = made(there, 1)
    assert complaint(there, small) == (
        f"capacity.id: {small} has 1 of 1 places free, 2 are needed"
        " (ReservationCapacityExceeded); ask for fewer nodes, or terminate instances that"
        " run in it"
    )
    other = made(there, InstanceType="p5.48xlarge")
    assert complaint(there, other) == (
        f"capacity.id: {other} is for p5.48xlarge, the file asks for p4d.24xlarge"
        " (ReservationCapacityExceeded); change instance_type, or name another reservation"
    )
    assert complaint(there, other, "capacity-block") == (
        f"capacity.id: {other} is a reservation, capacity.type is capacity-block; set"
        " capacity.type to reservation"
    )
    alone = made(there, Tenancy="dedicated")
    assert complaint(there, alone) == (
        f"capacity.id: {alone} has the tenancy dedicated, gpuctl's nodes have the default one"
        " (ReservationCapacityExceeded); name a reservation with default tenancy"
    )
    client(there, "ec2").cancel_capacity_reservation(CapacityReservationId=small)
    assert complaint(there, small) == (
        f"capacity.id: {small} is cancelled, not active (ReservationCapacityExceeded);"
        " name another: `gpuctl capacity TYPE` lists yours"
    )


def test_an_unknown_reservation_has_awss_code(there: Target) -> None:
    with pytest.raises(CloudError) as caught:
        asked(there, "cr-00000000000000000")
    assert caught.value.code == "InvalidCapacityReservationId.NotFound"
    assert caught.value.hint == "name one that exists: `gpuctl capacity TYPE` lists yours"


def test_a_block_is_waited_for_only_as_long_as_the_file_says(there: Target) -> None:
    start = datetime.now(UTC) + timedelta(minutes=10)
    soon = block(there, start)
    assert complaint(there, soon, "capacity-block") == (
        f"capacity.id: {soon} begins at {start:%Y-%m-%d %H:%M} UTC, in 10 minutes"
        " (ReservationCapacityExceeded); set capacity.wait to 10m or more, or come back then"
    )
    waits = {"capacity": {"wait": "15m"}}
    answer = asked(there, soon, "capacity-block", **waits)
    assert answer is not None
    assert answer[0].starts == start.replace(microsecond=answer[0].starts.microsecond)


def test_a_block_in_its_last_half_hour_is_no_use(there: Target) -> None:
    start = datetime.now(UTC) - timedelta(hours=23, minutes=45)
    late = block(there, start)
    assert complaint(there, late, "capacity-block") == (
        f"capacity.id: {late} ends at {start + timedelta(hours=24):%Y-%m-%d %H:%M} UTC: in a"
        " block's last half hour AWS ends its instances and starts none"
        " (ReservationCapacityExceeded); name another: `gpuctl capacity TYPE` lists yours"
    )


def test_a_cluster_does_not_move_to_a_reservations_zone(there: Target) -> None:
    one = made(there)
    cluster = Cluster.model_validate(
        {
            "name": "demo",
            "nodes": 2,
            "instance_type": P4D,
            "capacity": {"type": "reservation", "id": one},
        }
    )
    ec2 = client(there, "ec2")
    answer = find_reservation(ec2, cluster, "us-east-1b")
    assert answer is not None
    with pytest.raises(InputError) as caught:
        find_reservation(ec2, cluster, "us-east-1a")
    assert str(caught.value) == (
        f"capacity.id: {one} is in us-east-1b, the cluster in us-east-1a"
        " (ReservationCapacityExceeded); name one in us-east-1a, or remove the cluster first:"
        " `gpuctl down demo`"
    )


def test_no_id_is_no_question(there: Target) -> None:
    cluster = Cluster(name="demo", nodes=2, instance_type=P4D)
    assert find_reservation(client(there, "ec2"), cluster) is None
