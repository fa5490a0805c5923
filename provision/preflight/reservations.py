"""A capacity reservation or block of the user's own, checked before anything is made."""

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
"""AWS's code for a launch into a reservation that does not serve it, told before there is one."""

_MOST_SLEEP_S = 30.0


def find_reservation(
    ec2: "EC2Client", cluster: Cluster, home: str | None = None
) -> tuple[Reservation, str] | None:
    """The reservation that the file names and its zone, None where it names none.

    It is of the right kind and type, in the zone `home` if the cluster has one already, not over,
    and has free places for every node that does not run in it yet. It may begin within
    `capacity.wait`. Raises InputError, or CloudError where AWS does not know it.
    """
    wanted = cluster.capacity
    if wanted.id is None:
        return None
    with aws_errors():
        told: Any = ec2.describe_capacity_reservations(CapacityReservationIds=[wanted.id])[
            "CapacityReservations"
        ][0]
    found = Reservation(
        id=wanted.id,
        is_block=told.get("ReservationType") == "capacity-block",
        group=str(told.get("PlacementGroupArn") or "").rpartition("/")[2],
        starts=told.get("StartDate") or told["CreateDate"],
        ends=told.get("EndDate"),
    )
    _check_kind(cluster, told, found)
    zone = str(told["AvailabilityZone"])
    if home is not None and zone != home:
        raise InputError(
            f"capacity.id: {found.id} is in {zone}, the cluster in {home} {_REFUSED}",
            f"name one in {home}, or remove the cluster first: `gpuctl down {cluster.name}`",
        )
    _check_time(cluster, told, found)
    if told["State"] == "active":
        _check_places(ec2, cluster, told)
    return found, zone


def await_start(resolved: Resolved, report: Reporter) -> None:
    """The reservation has begun; at once where there is none to wait for."""
    reservation = resolved.reservation
    if reservation is None:
        return
    began = reservation.starts
    while (left := (began - datetime.now(UTC)).total_seconds()) > 0:
        detail = f"begins {_at(began)}, in {timedelta(seconds=int(left))}"
        report(Progress("capacity", reservation.id, "running", detail))
        time.sleep(min(left, _MOST_SLEEP_S))  # to the second; shorter, to tell the time


def _check_kind(cluster: Cluster, told: Any, found: Reservation) -> None:
    kind = "capacity-block" if found.is_block else "reservation"
    if cluster.capacity.type != kind:
        raise InputError(
            f"capacity.id: {found.id} is a {kind}, capacity.type is {cluster.capacity.type}",
            f"set capacity.type to {kind}",
        )
    if told["InstanceType"] != cluster.instance_type:
        raise InputError(
            f"capacity.id: {found.id} is for {told['InstanceType']}, the file asks for"
            f" {cluster.instance_type} {_REFUSED}",
            "change instance_type, or name another reservation",
        )


def _check_time(cluster: Cluster, told: Any, found: Reservation) -> None:
    """It is there now or within `wait`, and not about to end."""
    now, state = datetime.now(UTC), str(told["State"])
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


def _check_places(ec2: "EC2Client", cluster: Cluster, told: Any) -> None:
    """There is a free place for every node that has none yet: all of them, and not just one."""
    ours = sum(
        one.state in ALIVE and one.attributes.get("CapacityReservationId") == cluster.capacity.id
        for one in find_instances(ec2, cluster.name)
    )
    free, needed = int(told["AvailableInstanceCount"]), cluster.nodes - ours
    if free < needed:
        raise InputError(
            f"capacity.id: {cluster.capacity.id} has {free} of {told['TotalInstanceCount']} places"
            f" free, {needed} are needed {_REFUSED}",
            "ask for fewer nodes, or end what runs in it",
        )


def _at(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
