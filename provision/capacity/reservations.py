"""The checks of the user's capacity reservation or block before anything is created."""

import time
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Reservation, Resolved
from config.command_text import command_text
from config.errors import CloudError, InputError
from config.polling import Timeouts, poll
from config.progress import Progress, Reporter
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.resources import ALIVE, KINDS, find_instances
from provision.billing.cost import hourly_usd

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

_REFUSED = "(ReservationCapacityExceeded)"
"""AWS's code for a launch that a reservation cannot take; gpuctl's checks find that earlier."""

_ANOTHER = "name another: `gpuctl capacity TYPE` lists yours"

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
    capacity = cluster.capacity
    if capacity.id is None:
        return None
    raw = describe_reservation(ec2, capacity.id)
    reservation = Reservation(
        id=capacity.id,
        is_block=raw.get("ReservationType") == "capacity-block",
        group=str(raw.get("PlacementGroupArn") or "").rpartition("/")[2],
        starts=raw.get("StartDate") or raw["CreateDate"],
        ends=raw.get("EndDate"),
    )
    _check_kind(cluster, raw, reservation)
    zone = str(raw["AvailabilityZone"])
    if home is not None and zone != home:
        raise InputError(
            f"capacity.id: {reservation.id} is in {zone}, the cluster in {home} {_REFUSED}",
            f"name one in {home}, or remove the cluster first:"
            f" {command_text('gpuctl down {}', cluster.name)}",
        )
    _check_time(cluster, raw, reservation)
    if raw["State"] == "active":
        _check_places(ec2, cluster, raw)
    return reservation, zone


def await_reservation(
    resolved: Resolved,
    target: Target,
    report: Reporter,
    timeouts: Timeouts,
) -> None:
    """Wait until the cluster's reservation has begun, is active, and has places for all its nodes.

    Returns at once if the cluster has none. AWS needs minutes to clean up after an instance that
    ended in a capacity block; its place is free only then. Raises CloudError when the time is over.
    """
    reservation = resolved.reservation
    if reservation is None:
        return
    while (left := _seconds_until(reservation.starts)) > 0:
        detail = f"begins {_at(reservation.starts)}, in {timedelta(seconds=int(left))}"
        report(Progress("capacity", reservation.id, "running", detail))
        time.sleep(min(left, _MOST_SLEEP_S))  # short, so that progress shows the time left
    ec2, end = client(target, "ec2"), datetime.now(UTC) + timedelta(seconds=timeouts.most_s)
    problem = ""

    def is_ready() -> bool | None:
        nonlocal problem
        problem = _not_ready(ec2, resolved.cluster, reservation.id)
        return None if problem else True

    def announce(_: float) -> None:
        cost = hourly_usd(resolved)
        price = "" if cost is None else f", at ${cost:,.2f} an hour for the cluster"
        detail = f"{problem}: waits until {_at(end)} at most{price}"
        report(Progress("capacity", reservation.id, "running", detail))

    if not poll(is_ready, timeouts, announce):
        raise CloudError(
            f"{reservation.id} {problem}, {timeouts.most_s / 60:.0f} minutes after the first"
            " request",
            "repeat the command later;"
            f" {command_text('gpuctl capacity {}', resolved.instance_type.name)} shows its"
            " places",
            "ReservationCapacityExceeded",
        )


def _seconds_until(moment: datetime) -> float:
    return (moment - datetime.now(UTC)).total_seconds()


def _not_ready(ec2: "EC2Client", cluster: Cluster, reservation_id: str) -> str:
    """Return why the reservation cannot take the missing nodes yet; empty if it can.

    Raises CloudError if it never will, because it has ended.
    """
    raw = describe_reservation(ec2, reservation_id)
    if raw["State"] in KINDS["capacity reservation"].gone:
        raise CloudError(f"{reservation_id} is {raw['State']}", _ANOTHER)
    if raw["State"] != "active":
        return f"is {raw['State']}, not active"
    free, needed, _ = _places(ec2, cluster, raw)
    return "" if free >= needed else _shortage(raw, free, needed)


def _shortage(raw: Any, free: int, needed: int) -> str:
    verb = "is" if needed == 1 else "are"
    return f"has {free} of {raw['TotalInstanceCount']} places free, {needed} {verb} needed"


def _places(ec2: "EC2Client", cluster: Cluster, raw: Any) -> tuple[int, int, int]:
    """Return how many places are free, and are needed, and how many ended nodes may still have.

    A place is needed for every node that does not run in the reservation.
    """
    inside = [
        instance
        for instance in find_instances(ec2, cluster.name)
        if instance.attributes.get("CapacityReservationId") == cluster.capacity.id
    ]
    alive = sum(instance.state in ALIVE for instance in inside)
    return int(raw["AvailableInstanceCount"]), cluster.nodes - alive, len(inside) - alive


def _check_kind(cluster: Cluster, raw: Any, reservation: Reservation) -> None:
    kind = "capacity-block" if reservation.is_block else "reservation"
    if cluster.capacity.type != kind:
        raise InputError(
            f"capacity.id: {reservation.id} is a {kind}, capacity.type is {cluster.capacity.type}",
            f"set capacity.type to {kind}",
        )
    if raw["InstanceType"] != cluster.instance_type:
        raise InputError(
            f"capacity.id: {reservation.id} is for {raw['InstanceType']}, the file asks for"
            f" {cluster.instance_type} {_REFUSED}",
            "change instance_type, or name another reservation",
        )
    # A launch matches a reservation's tenancy too, and gpuctl launches with the default one
    # (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-launch.html,
    # 2026-11-23).
    if (tenancy := raw.get("Tenancy", "default")) != "default":
        raise InputError(
            f"capacity.id: {reservation.id} has the tenancy {tenancy}, gpuctl's nodes have"
            f" the default one {_REFUSED}",
            "name a reservation with default tenancy",
        )


def _check_time(cluster: Cluster, raw: Any, reservation: Reservation) -> None:
    """Raise InputError unless the reservation begins within `wait` and is not about to end."""
    now, state = datetime.now(UTC), str(raw["State"])
    if (
        reservation.ends
        and reservation.instances_end
        and now >= reservation.instances_end
        and state == "active"
    ):
        raise InputError(
            f"capacity.id: {reservation.id} ends at {_at(reservation.ends)}: in a block's last half"
            f" hour AWS ends its instances and starts none {_REFUSED}",
            _ANOTHER,
        )
    if state == "scheduled":
        wait = cluster.capacity.wait or 0
        if reservation.starts > now + timedelta(seconds=wait):
            minutes = int((reservation.starts - now).total_seconds() // 60) + 1
            raise InputError(
                f"capacity.id: {reservation.id} begins at {_at(reservation.starts)}, in {minutes}"
                f" minutes {_REFUSED}",
                f"set capacity.wait to {minutes}m or more, or come back then",
            )
    elif state != "active":
        raise InputError(
            f"capacity.id: {reservation.id} is {state}, not active {_REFUSED}", _ANOTHER
        )


def _check_places(ec2: "EC2Client", cluster: Cluster, raw: Any) -> None:
    """Raise InputError unless every node that is not in the reservation has a free place in it.

    The places of nodes that have ended count: AWS may still clean up there.
    """
    free, needed, ending = _places(ec2, cluster, raw)
    if min(free + ending, int(raw["TotalInstanceCount"])) < needed:
        raise InputError(
            f"capacity.id: {cluster.capacity.id} {_shortage(raw, free, needed)} {_REFUSED}",
            "ask for fewer nodes, or terminate instances that run in it",
        )


def _at(moment: datetime) -> str:
    return f"{moment.astimezone(UTC):%Y-%m-%d %H:%M} UTC"


UNKNOWN = "InvalidCapacityReservationId.NotFound"
"""EC2's code for a reservation that does not exist, or that a part of EC2 does not know yet."""


def describe_reservation(ec2: "EC2Client", reservation_id: str, *, is_new: bool = False) -> Any:
    """Return EC2's description of the reservation.

    With `is_new` it is empty while a part of EC2 does not know the reservation; without, that is a
    CloudError with the code UNKNOWN.
    """
    try:
        with aws_errors():
            answer = ec2.describe_capacity_reservations(CapacityReservationIds=[reservation_id])
    except CloudError as error:
        if is_new and error.code == UNKNOWN:
            return {}
        raise
    return answer["CapacityReservations"][0]
