"""The checks of the user's capacity reservation or block before anything is created."""

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Reservation, Resolved
from config.errors import InputError
from config.progress import Progress, Reporter
from provision.aws.clients import aws_errors
from provision.aws.resources import ALIVE, find_instances

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

WIND_DOWN = timedelta(minutes=30)
"""AWS ends a block's instances this long before the block's end: "How Capacity Blocks work",
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-how.html (2026-11-20)."""

_REFUSED = "(ReservationCapacityExceeded)"
"""AWS's code for a launch that a reservation cannot take; gpuctl's checks find that earlier."""

_MOST_SLEEP_S = 30.0


def find_reservation(
    ec2: "EC2Client", cluster: Cluster, home: str | None = None
) -> tuple[Reservation, str] | None:
    """Return the reservation that the file names and its zone, or None if it names none.

    The reservation has the right kind and instance type, is in the zone `home` if the cluster
    already has one, has not ended, and has free places for every node that does not run in it yet.
    It may begin within `capacity.wait`. Raises InputError otherwise, and CloudError if AWS does not
    know it.
    """
    wanted = cluster.capacity
    if wanted.id is None:
        return None
    with aws_errors():
        raw: Any = ec2.describe_capacity_reservations(CapacityReservationIds=[wanted.id])[
            "CapacityReservations"
        ][0]
    found = Reservation(
        id=wanted.id,
        is_block=raw.get("ReservationType") == "capacity-block",
        group=str(raw.get("PlacementGroupArn") or "").rpartition("/")[2],
        starts=raw.get("StartDate") or raw["CreateDate"],
        ends=raw.get("EndDate"),
    )
    _check_kind(cluster, raw, found)
    zone = str(raw["AvailabilityZone"])
    if home is not None and zone != home:
        raise InputError(
            f"capacity.id: {found.id} is in {zone}, the cluster in {home} {_REFUSED}",
            f"name one in {home}, or remove the cluster first: `gpuctl down {cluster.name}`",
        )
    _check_time(cluster, raw, found)
    if raw["State"] == "active":
        _check_places(ec2, cluster, raw)
    return found, zone


def await_start(resolved: Resolved, report: Reporter) -> None:
    """Wait until the cluster's reservation has begun; return at once if it has none."""
    reservation = resolved.reservation
    if reservation is None:
        return
    began = reservation.starts
    while (left := (began - datetime.now(UTC)).total_seconds()) > 0:
        detail = f"begins {_at(began)}, in {timedelta(seconds=int(left))}"
        report(Progress("capacity", reservation.id, "running", detail))
        time.sleep(min(left, _MOST_SLEEP_S))  # short, so that progress shows the time left


def _check_kind(cluster: Cluster, raw: Any, found: Reservation) -> None:
    kind = "capacity-block" if found.is_block else "reservation"
    if cluster.capacity.type != kind:
        raise InputError(
            f"capacity.id: {found.id} is a {kind}, capacity.type is {cluster.capacity.type}",
            f"set capacity.type to {kind}",
        )
    if raw["InstanceType"] != cluster.instance_type:
        raise InputError(
            f"capacity.id: {found.id} is for {raw['InstanceType']}, the file asks for"
            f" {cluster.instance_type} {_REFUSED}",
            "change instance_type, or name another reservation",
        )
    # A launch matches a reservation's tenancy too, and gpuctl launches with the default one
    # (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-launch.html,
    # 2026-11-23).
    if (tenancy := raw.get("Tenancy", "default")) != "default":
        raise InputError(
            f"capacity.id: {found.id} has the tenancy {tenancy}, gpuctl's nodes have the default"
            f" one {_REFUSED}",
            "name a reservation with default tenancy",
        )


def _check_time(cluster: Cluster, raw: Any, found: Reservation) -> None:
    """Raise InputError unless the reservation begins within `wait` and is not about to end."""
    now, state = datetime.now(UTC), str(raw["State"])
    another = "name another: `gpuctl capacity TYPE` lists yours"
    if found.is_block and found.ends and now >= found.ends - WIND_DOWN and state == "active":
        raise InputError(
            f"capacity.id: {found.id} ends at {_at(found.ends)}: in a block's last half hour AWS"
            f" ends its instances and starts none {_REFUSED}",
            another,
        )
    if state == "scheduled":
        wait = cluster.capacity.wait or 0
        if found.starts > now + timedelta(seconds=wait):
            minutes = int((found.starts - now).total_seconds() // 60) + 1
            raise InputError(
                f"capacity.id: {found.id} begins at {_at(found.starts)}, in {minutes} minutes"
                f" {_REFUSED}",
                f"set capacity.wait to {minutes}m or more, or come back then",
            )
    elif state != "active":
        raise InputError(f"capacity.id: {found.id} is {state}, not active {_REFUSED}", another)


def _check_places(ec2: "EC2Client", cluster: Cluster, raw: Any) -> None:
    """Raise InputError unless every node that is not in the reservation has a free place in it."""
    ours = sum(
        one.state in ALIVE and one.attributes.get("CapacityReservationId") == cluster.capacity.id
        for one in find_instances(ec2, cluster.name)
    )
    free, needed = int(raw["AvailableInstanceCount"]), cluster.nodes - ours
    if free < needed:
        raise InputError(
            f"capacity.id: {cluster.capacity.id} has {free} of {raw['TotalInstanceCount']} places"
            f" free, {needed} are needed {_REFUSED}",
            "ask for fewer nodes, or terminate instances that run in it",
        )


def _at(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
