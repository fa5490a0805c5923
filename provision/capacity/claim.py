"""Capacity for a whole cluster, claimed right before its nodes are launched.

AWS grants an on-demand capacity reservation for all N instances or refuses it, as a rule within a
second. gpuctl therefore reserves first, waits until the reservation is active, launches the N
machines into it by its id, and then cancels it. Only instances that name the reservation use it:
an open one would give its places to instances that run already. The reservation also has an end
minutes later, so that a client that dies leaves no bill.
"""

import random
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any, TypeVar

from config.catalogue.aws_codes import aws_code, remedy
from config.cluster.resolved import CLUSTER_TAG, ID_TAG, Resolved
from config.duration import format_duration
from config.errors import CloudError, GpuctlError
from config.polling import Timeouts, poll
from config.progress import Progress, Reporter
from config.target import Target
from provision.aws.clients import ATTEMPTS, aws_errors, client
from provision.capacity.reservations import UNKNOWN, describe_reservation

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


@dataclass(frozen=True)
class CapacityTimes:
    """The waits for capacity.

    - `active`: for a claim to become active. AWS: "it can take up to 5 minutes for the state of the
      Capacity Reservation to reflect that it is active"
      (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-view.html,
      2026-11-22). It is shorter than claim.HELD, so that the machines still have time to start.
    - `known`: until EC2 knows a placement group or a reservation that it has just created. AWS
      advises to wait from seconds to five minutes
      (https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html, 2026-11-23).
    - `rounds`: the pauses between two rounds through the zones, for as long as `capacity.wait`.
    - `cleanup`: for the places of ended instances in a capacity block. AWS: "it takes several
      minutes to clean up your instance before you can launch another instance to replace it"
      (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html, 2026-11-26).
    """

    active: Timeouts
    known: Timeouts
    rounds: Timeouts
    cleanup: Timeouts


CAPACITY_TIMES = CapacityTimes(
    active=Timeouts(600, 2),
    known=Timeouts(120, 2),
    rounds=Timeouts(0, 5, 60, jitter=0.2),
    cleanup=Timeouts(20 * 60, 5),
)


HELD = timedelta(minutes=20)
"""A claim has its end this long after its creation, even if nobody cancels it."""

ENDED_WITHIN = timedelta(hours=1)
"""AWS ends a reservation "within an hour from the specified time" (CreateCapacityReservation's
reference, EndDate, 2026-11-20)."""

T = TypeVar("T")


@dataclass(frozen=True)
class Claim:
    """A reservation of `count` instances in `zone` for the cluster."""

    id: str
    zone: str
    count: int


class _ClaimFailed(CloudError):
    """AWS accepted a reservation and then failed it: the zone has no room after all."""


class NoCapacity(CloudError):
    """No zone has the requested capacity; `code` is that of the last refusal."""


def may_succeed_elsewhere(error: GpuctlError) -> bool:
    """Return whether another zone may have the capacity that this one refused."""
    known = aws_code(getattr(error, "code", ""))
    return known is not None and known.repeat == "other zone"


@contextmanager
def claim_capacity(
    resolved: Resolved,
    count: int,
    target: Target,
    report: Reporter,
    times: CapacityTimes = CAPACITY_TIMES,
    *,
    has_group: bool = False,
) -> Iterator[Claim]:
    """Reserve `count` instances in the first zone that has them, until the block ends.

    The reservation is active, has all places free, and is in the cluster's placement group, if that
    exists. With `has_group` it exists, and gpuctl waits until EC2 lists it: instances that start in
    the group use no reservation outside of it. When the block ends, gpuctl cancels the reservation;
    instances that run in it keep running. Raises NoCapacity with each zone's refusal when
    `capacity.wait` is over.
    """
    # botocore must not retry: AWS answers HTTP 500 when the zone is full.
    once, ec2 = client(target, "ec2", attempts=1), client(target, "ec2")
    group = _await_group(ec2, resolved, times.known) if has_group else _group(ec2, resolved)

    def claim(zone: str) -> Claim:
        made = _claim(once, resolved, count, zone, group)
        try:
            _await_active(ec2, made, report, times.active)
        except _ClaimFailed:
            raise  # AWS has ended it
        except BaseException:
            _cancel(ec2, made, report, times.known)
            raise
        return made

    made = try_zones(resolved, f"{count} x {_type(resolved)}", claim, report, times)
    try:
        yield made
    finally:
        _cancel(ec2, made, report, times.known)


def try_zones(
    resolved: Resolved,
    what: str,
    attempt: Callable[[str], T],
    report: Reporter,
    times: CapacityTimes = CAPACITY_TIMES,
) -> T:
    """Call `attempt` with one zone after the other; return its first result.

    After a zone without capacity the next is tried at once; after the last, all are tried again
    until `capacity.wait` is over. Raises NoCapacity then. An error that another zone cannot remedy
    is raised at once.
    """
    wait = resolved.cluster.capacity.wait or 0
    refusals: dict[str, GpuctlError] = {}

    def try_each() -> T | None:
        for zone in resolved.zones or (resolved.zone,):
            report(Progress("capacity", zone, "start", what))
            try:
                got = attempt(zone)
            except GpuctlError as error:
                report(Progress("capacity", zone, "failed", getattr(error, "code", "")))
                if not may_succeed_elsewhere(error):
                    raise
                refusals[zone] = error
            else:
                report(Progress("capacity", zone, "done", what))
                return got
        return None

    def announce(pause: float) -> None:
        detail = f"no zone has {what}: next try in {pause:.0f}s, for at most"
        report(Progress("capacity", "all zones", "running", f"{detail} {format_duration(wait)}"))

    got = poll(try_each, replace(times.rounds, most_s=wait), announce)
    if got is None:
        raise _none_has(what, wait, refusals)
    return got


def _none_has(what: str, wait: int, refusals: dict[str, GpuctlError]) -> NoCapacity:
    said = ", ".join(f"{zone}: {getattr(e, 'code', '')}" for zone, e in refusals.items())
    last = list(refusals.values())[-1]
    waited = f" within {format_duration(wait)}" if wait else ""
    return NoCapacity(
        f"no zone has {what} whole{waited}, so nothing was launched ({said})",
        f"{last.hint}, or set capacity.wait (30m)" if not wait else last.hint,
        getattr(last, "code", ""),
    )


def _claim(ec2: "EC2Client", resolved: Resolved, count: int, zone: str, group: str | None) -> Claim:
    """Reserve in one zone. All tries use one token: a lost answer leads to no second claim."""
    tags = [
        {"Key": key, "Value": value}
        for key, value in {**resolved.tags, "Name": f"{resolved.cluster.name}-claim"}.items()
    ]
    request: dict[str, Any] = {
        "ClientToken": str(uuid.uuid4()),
        "InstanceType": _type(resolved),
        "InstancePlatform": "Linux/UNIX",
        "AvailabilityZone": zone,
        "InstanceCount": count,
        "InstanceMatchCriteria": "targeted",
        "EndDateType": "limited",
        "EndDate": datetime.now(UTC) + HELD,
        "TagSpecifications": [{"ResourceType": "capacity-reservation", "Tags": tags}],
        **({"PlacementGroupArn": group} if group else {}),
    }
    for attempt in range(ATTEMPTS):
        try:
            with aws_errors(zone):
                made = ec2.create_capacity_reservation(**request)["CapacityReservation"]
        except CloudError as error:
            known = aws_code(error.code)
            lost = error.code == "EndpointConnection" or (known and known.repeat == "same")
            if not lost or attempt == ATTEMPTS - 1:
                raise
            time.sleep(random.uniform(0, min(20.0, 2.0**attempt)))  # noqa: S311  (no secret)
        else:
            return Claim(made["CapacityReservationId"], zone, count)
    raise AssertionError("unreachable")


def _await_active(ec2: "EC2Client", claim: Claim, report: Reporter, timeouts: Timeouts) -> None:
    """Wait until the reservation is active; check that all of its places are free.

    Raises _ClaimFailed if AWS ends the reservation instead, and CloudError if it is still pending
    when the time is over, or has fewer places.
    """
    code = "InsufficientInstanceCapacity"

    def ask() -> Any | None:
        held = describe_reservation(ec2, claim.id, is_new=True)
        if (state := held.get("State", "pending")) == "active":
            return held
        if state != "pending":
            raise _ClaimFailed(
                f"AWS accepted the reservation {claim.id} in {claim.zone}; then it became {state}",
                remedy(code),
                code,
            )
        return None

    detail = "AWS provisions the reservation"
    running = Progress("capacity", claim.zone, "running", detail)
    held = poll(ask, timeouts, lambda _: report(running))
    if held is None:
        raise CloudError(
            f"the reservation {claim.id} in {claim.zone} is still pending",
            "name other zones in capacity.zones, or try again in 20 minutes, when it has ended",
        )
    if (free := int(held["AvailableInstanceCount"])) < claim.count:
        raise CloudError(
            f"the reservation {claim.id} in {claim.zone} has {free} of {claim.count} places free",
            remedy(code),
            code,
        )


def _cancel(ec2: "EC2Client", claim: Claim, report: Reporter, timeouts: Timeouts) -> None:
    """Cancel the reservation; report a failure only, because the reservation ends by itself.

    A part of EC2 may not know a new reservation yet: it bills, although EC2 does not find it.
    """

    def cancel() -> str | None:
        """Return the code of AWS's refusal, empty without one; None to ask again."""
        try:
            with aws_errors():
                ec2.cancel_capacity_reservation(CapacityReservationId=claim.id)
        except CloudError as error:
            return None if error.code == UNKNOWN else error.code
        return ""

    refusal = poll(cancel, timeouts)
    if refusal != "":
        detail = f"not cancelled ({refusal or UNKNOWN}): it ends by itself"
        report(Progress("capacity", claim.id, "failed", detail))


def _await_group(ec2: "EC2Client", resolved: Resolved, timeouts: Timeouts) -> str:
    """Return the ARN of the cluster's new placement group as soon as EC2 lists it."""
    group = poll(lambda: _group(ec2, resolved), timeouts)
    if group is None:
        raise CloudError(
            f"EC2 does not list the placement group of cluster '{resolved.cluster.name}'"
            f" {timeouts.most_s:.0f} s after its creation",
            "repeat `gpuctl up` later",
        )
    return group


def _group(ec2: "EC2Client", resolved: Resolved) -> str | None:
    """Return the ARN of the cluster's placement group, or None if it has none."""
    tags = {name: resolved.tags[name] for name in (CLUSTER_TAG, ID_TAG) if name in resolved.tags}
    with aws_errors():
        groups = ec2.describe_placement_groups(
            Filters=[{"Name": f"tag:{tag}", "Values": [value]} for tag, value in tags.items()]
        )["PlacementGroups"]
    return next((g["GroupArn"] for g in groups if g.get("State") == "available"), None)


def _type(resolved: Resolved) -> str:
    return resolved.instance_type.name
