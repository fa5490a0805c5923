"""Capacity reservations and capacity blocks, which moto lacks: their room and their instances.

Sources: the EC2 API's reference of each action, "How Capacity Blocks work" and "Error codes for the
Amazon EC2 API" (read 2026-11-20). Where AWS publishes no text for an error, the text is ours.
"""

import secrets
from collections.abc import Mapping
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.ec2.models.core import TaggedEC2Resource

from config.catalogue.instance_types import catalogue
from lab.api.errors import Refusal, ServerFault, bad_combination
from lab.api.faults import FaultyReservation
from lab.api.quotas import check_vcpus

BLOCK = "capacity-block"
ENDED = frozenset({"terminated", "stopped"})
_USABLE = frozenset({"active", "scheduled"})

CLEANUP_S = 2
"""Seconds after an instance's end in a block until its place is free: "it takes several minutes to
clean up your instance before you can launch another instance to replace it", and after that the
block shows the place
(https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-blocks-launch.html, 2026-11-26)."""

FAILING_S = 1
"""Seconds that a reservation is pending before it fails, with the fault claim-failed."""

WIND_DOWN = timedelta(minutes=30)
"""The time before a block's end at which AWS terminates its instances and starts no more."""


class CapacityReservation(TaggedEC2Resource):  # type: ignore[misc]  # moto is untyped here
    """Room for `total` instances of a type in a zone; `available` of them are unused."""

    def __init__(self, backend: Any, request: Mapping[str, Any], kind: str = "default") -> None:
        self.ec2_backend = backend
        self.id = f"cr-{secrets.token_hex(9)[:17]}"
        self.kind = kind
        self.instance_type = str(request["InstanceType"])
        self.availability_zone = str(request["AvailabilityZone"])
        self.platform = str(request.get("InstancePlatform") or "Linux/UNIX")
        self.total = int(request["InstanceCount"])
        self.tenancy = str(request.get("Tenancy") or "default")
        self.match = str(request.get("InstanceMatchCriteria") or "open")
        self.placement_group_arn = request.get("PlacementGroupArn")
        self.created = datetime.now(UTC)
        self.start: datetime = request.get("StartDate") or self.created
        self.end: datetime | None = request.get("EndDate")
        self.ready = self.created
        self.fails = False
        self._cancelled = False
        self.fault: FaultyReservation | None = None

    @property
    def state(self) -> str:
        """The reservation's state in EC2's words, which depends on the time."""
        now = datetime.now(UTC)
        if self._cancelled:
            return "cancelled"
        if self.end is not None and now >= self.end:
            return "expired"
        if now < self.ready:
            return "pending"
        if self.fails:
            return "failed"
        return "active" if now >= self.start else "scheduled"

    @property
    def holds_room(self) -> bool:
        """Return whether its room is taken from the zone, also while it is pending."""
        return self.state in ("active", "pending")

    @property
    def reservation_type(self) -> str:
        """The type, `default` or `capacity-block`; requests can filter with it."""
        return self.kind

    @property
    def available(self) -> int:
        """The number of instances that still fit; 0 unless it is active or scheduled."""
        if self.state not in _USABLE:
            return 0
        inside: int = sum(
            instance.capacity_reservation_id == self.id
            and (instance.state not in ENDED or self._cleans_up(instance))
            for instance in self.ec2_backend.all_instances()
        )
        return self.total - inside

    def _cleans_up(self, instance: Any) -> bool:
        """Return whether the instance, which has ended, still has its place in the block."""
        seconds = self.ec2_backend.lab.faults.number("block-cleanup")
        cleanup = timedelta(seconds=CLEANUP_S if seconds is None else seconds)
        return self.kind == BLOCK and datetime.now(UTC) < instance.changed + cleanup

    def cancel(self) -> None:
        """Cancel the reservation. Instances that run in it keep running."""
        self._cancelled = True

    def description(self) -> dict[str, Any]:
        """Return the reservation as EC2's CapacityReservation."""
        account, region = self.ec2_backend.account_id, self.ec2_backend.region_name
        fields = {
            "CapacityReservationId": self.id,
            "OwnerId": account,
            "CapacityReservationArn": f"arn:aws:ec2:{region}:{account}:capacity-reservation/"
            f"{self.id}",
            "InstanceType": self.instance_type,
            "InstancePlatform": self.platform,
            "AvailabilityZone": self.availability_zone,
            "Tenancy": self.tenancy,
            "TotalInstanceCount": self.total,
            "AvailableInstanceCount": self.available,
            "EbsOptimized": False,
            "EphemeralStorage": False,
            "State": self.state,
            "StartDate": self.start,
            "EndDate": self.end,
            "EndDateType": "limited" if self.end else "unlimited",
            "InstanceMatchCriteria": self.match,
            "CreateDate": self.created,
            "Tags": [{"Key": tag["key"], "Value": tag["value"]} for tag in self.get_tags()],
            "PlacementGroupArn": self.placement_group_arn,
            "ReservationType": self.kind,
        }
        return {name: value for name, value in fields.items() if value is not None}


class CapacityReservations:
    """The region's reservations; part of the lab's EC2 backend."""

    capacity_reservations: dict[str, CapacityReservation]
    capacity_block_offerings: dict[str, Mapping[str, Any]]

    def create_capacity_reservation(
        self, request: Mapping[str, Any], tags: dict[str, str]
    ) -> CapacityReservation:
        """Reserve the room if there is enough; a repeated ClientToken returns the same one."""
        token = request.get("ClientToken")
        for known in self.capacity_reservations.values():
            if token and known.__dict__.get("token") == token:
                return known
        count, zone = int(request["InstanceCount"]), str(request["AvailabilityZone"])
        if arn := request.get("PlacementGroupArn"):
            self.placement_group(str(arn).rpartition("/")[2])  # type: ignore[attr-defined]
        check_vcpus(self, str(request["InstanceType"]), count)
        check_room(self, zone, str(request["InstanceType"]), count)
        made = CapacityReservation(self, request)
        made.token = token
        self._delay(made)
        self._keep(made, tags)
        return made

    def _delay(self, made: CapacityReservation) -> None:
        """Let the reservation be pending, and then fail, as the faults say.

        "After you create a Capacity Reservation, it can take up to 5 minutes for the state […] to
        reflect that it is active"; a request can also fail afterwards
        (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-view.html,
        CapacityReservation's State in EC2's API reference, 2026-11-22).
        """
        faults = self.lab.faults  # type: ignore[attr-defined]
        made.fails = made.availability_zone in (faults.arguments("claim-failed") or ())
        seconds = FAILING_S if made.fails else faults.number("claim-pending") or 0
        made.ready = made.created + timedelta(seconds=seconds)

    def purchase_capacity_block(
        self, request: Mapping[str, Any], tags: dict[str, str]
    ) -> CapacityReservation:
        """Buy the block. Its room is separate from the zone's room in the capacity table."""
        made = CapacityReservation(self, {**request, "InstanceMatchCriteria": "targeted"}, BLOCK)
        self._keep(made, tags)
        return made

    def match_running_instances(self) -> None:
        """Move running instances into open reservations that have places for them.

        "By default, Capacity Reservations automatically match new instances and running instances
        that have matching attributes"; in a placement group only members of the group
        (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/capacity-reservations-using.html and
        capacity-reservations-launch.html, 2026-11-26).
        """
        known = self.capacity_reservations
        places = {
            reservation.id: reservation.available
            for reservation in known.values()
            if reservation.match == "open" and reservation.state == "active"
        }
        if not any(places.values()):
            return
        for instance in self.all_instances():  # type: ignore[attr-defined]
            inside = known.get(instance.capacity_reservation_id)
            in_use = inside is not None and inside.state in _USABLE
            if instance.state not in ("pending", "running") or in_use:
                continue
            fitting = (
                reservation
                for reservation in places
                if _matches(known[reservation], instance.launch)
            )
            if place := next(
                (reservation for reservation in fitting if places[reservation] > 0), None
            ):
                instance.capacity_reservation_id = place
                places[place] -= 1

    def sync_fault_reservations(self) -> None:
        """Add this region's reservations of faults that are set; remove those of cleared faults."""
        known = self.capacity_reservations
        region = self.region_name  # type: ignore[attr-defined]
        faulty = {r.id: r for r in self.lab.faults.reservations()}  # type: ignore[attr-defined]
        for gone in [r.id for r in known.values() if r.fault and r.id not in faulty]:
            del known[gone]
        for fault in faulty.values():
            if fault.id not in known and fault.zone[:-1] == region:
                known[fault.id] = _faulty_reservation(self, fault)

    def _keep(self, made: CapacityReservation, tags: dict[str, str]) -> None:
        self.capacity_reservations[made.id] = made
        made.add_tags(tags)

    def capacity_reservation(self, reservation_id: str) -> CapacityReservation:
        """Return the reservation; InvalidCapacityReservationId.NotFound if there is none."""
        if reservation_id not in self.capacity_reservations:
            raise Refusal(
                "InvalidCapacityReservationId.NotFound",
                f"The Capacity Reservation ID '{reservation_id}' does not exist.",
            )
        return self.capacity_reservations[reservation_id]

    def cancel_capacity_reservation(self, reservation_id: str) -> None:
        """Cancel the reservation; UnsupportedOperation for a capacity block.

        AWS's list of states in which it can be cancelled has neither pending nor failed
        (CancelCapacityReservation's reference, 2026-11-22). IncorrectState is the lab's choice of
        a code.
        """
        reservation = self.capacity_reservation(reservation_id)
        if reservation.kind == BLOCK:
            raise Refusal("UnsupportedOperation", "A Capacity Block cannot be cancelled.")
        if reservation.state in ("pending", "failed"):
            raise Refusal("IncorrectState", f"{reservation_id} is {reservation.state}.")
        reservation.cancel()


def _faulty_reservation(backend: Any, fault: FaultyReservation) -> CapacityReservation:
    """Return the reservation that a fault describes: it fits a launch except for one property."""
    request: dict[str, Any] = {
        "InstanceType": fault.instance_type,
        "AvailabilityZone": fault.zone,
        "InstanceCount": fault.count,
        "InstanceMatchCriteria": "targeted",
        "StartDate": fault.since,
    }
    if fault.kind == "wrong-zone":
        zones = (f"{backend.region_name}{letter}" for letter in "ab")
        request["AvailabilityZone"] = next(zone for zone in zones if zone != fault.zone)
    elif fault.kind == "wrong-type":
        request["InstanceType"] = next(t for t in catalogue() if t != fault.instance_type)
    elif fault.kind == "too-small":
        request["InstanceCount"] = fault.count - 1
    elif fault.kind == "not-started":
        start = fault.since + timedelta(hours=1)
        request |= {"StartDate": start, "EndDate": start + timedelta(days=1)}
    elif fault.kind == "last-half-hour":
        end = fault.since + WIND_DOWN
        request |= {"StartDate": end - timedelta(days=1), "EndDate": end}
    made = CapacityReservation(backend, request, BLOCK if "EndDate" in request else "default")
    made.id, made.fault = fault.id, fault
    return made


def room(backend: Any, zone: str, instance_type: str) -> int | None:
    """Return the zone's free room for the type; None if neither fault nor table sets a limit.

    A reservation occupies its room even if it is unused. Blocks are separate capacity.
    """
    limit: int | None = backend.lab.capacity.limit(zone, instance_type)
    if limit is None:
        return None
    known = backend.capacity_reservations.values()
    alike = [r for r in known if (r.availability_zone, r.instance_type) == (zone, instance_type)]
    held = {r.id: r.total for r in alike if r.holds_room and r.kind != BLOCK}
    blocks = {r.id for r in alike if r.kind == BLOCK}
    outside = sum(
        instance.instance_type == instance_type
        and instance.availability_zone == zone
        and instance.capacity_reservation_id not in {*held, *blocks}
        for instance in backend.all_instances()
        if instance.state not in ENDED
    )
    left: int = limit - outside - sum(held.values())
    return left


def check_room(backend: Any, zone: str, instance_type: str, count: int) -> None:
    """Raise InsufficientInstanceCapacity if the zone has no room for `count` more instances."""
    left = room(backend, zone, instance_type)
    if left is not None and left < count:
        raise insufficient_capacity(zone, instance_type)


def insufficient_capacity(zone: str, instance_type: str) -> ServerFault:
    """Return InsufficientInstanceCapacity with the text of AWS."""
    return ServerFault(
        "InsufficientInstanceCapacity",
        f"We currently do not have sufficient {instance_type} capacity in the Availability Zone you"
        f" requested ({zone}). Our system will be working on provisioning additional capacity.",
    )


def reservation_of(backend: Any, launch: Any, count: int) -> CapacityReservation | None:
    """Return the reservation that a launch of `count` instances runs in; None if it uses none.

    If the launch names a reservation, use it or raise Refusal. With the preference `open`, the
    default, use any open reservation with the same type, zone and placement group.
    """
    specification = launch.parameters.get("CapacityReservationSpecification") or {}
    target = (specification.get("CapacityReservationTarget") or {}).get("CapacityReservationId")
    market = (launch.parameters.get("InstanceMarketOptions") or {}).get("MarketType")
    if target:
        return _targeted(backend.capacity_reservation(target), launch, market, count)
    if market == BLOCK:
        raise bad_combination("MarketType capacity-block needs a CapacityReservationId.")
    for known in backend.capacity_reservations.values():
        if known.state == "active" and known.available >= count and _matches(known, launch):
            return known  # type: ignore[no-any-return]
    if specification.get("CapacityReservationPreference") == "capacity-reservations-only":
        raise _capacity_exceeded()
    return None


def _matches(reservation: CapacityReservation, launch: Any) -> bool:
    """Return whether the reservation is open to the launch, which names none."""
    specification = launch.parameters.get("CapacityReservationSpecification") or {}
    market = (launch.parameters.get("InstanceMarketOptions") or {}).get("MarketType")
    is_open = reservation.match == "open" and "CapacityReservationTarget" not in specification
    is_open &= specification.get("CapacityReservationPreference") != "none" and market != "spot"
    return is_open and _fits(reservation, launch)


def _targeted(
    reservation: CapacityReservation, launch: Any, market: str | None, count: int
) -> CapacityReservation:
    """Return the reservation if the launch may use it.

    A spot instance cannot (kubernetes-sigs/cluster-api-provider-aws 5374 and 5633: "not supported
    by AWS", 2026-11-23).
    """
    if market == "spot" or (reservation.kind == BLOCK) != (market == BLOCK):
        raise bad_combination(
            f"The Capacity Reservation '{reservation.id}' and MarketType {market or 'on-demand'}"
            " do not go together."
        )
    zone = launch.subnet.availability_zone
    compatible = (reservation.instance_type, reservation.availability_zone) == (
        launch.instance_type,
        zone,
    )
    compatible &= reservation.tenancy == launch.tenancy
    ends = (
        reservation.kind == BLOCK
        and reservation.end
        and datetime.now(UTC) >= reservation.end - WIND_DOWN
    )
    if reservation.state != "active" or ends or not compatible:
        raise _capacity_exceeded()
    if not _fits(reservation, launch):
        raise insufficient_capacity(zone, launch.instance_type)
    taken = reservation.fault is not None and reservation.fault.kind == "taken"
    if taken or reservation.available < count:
        raise _capacity_exceeded()
    return reservation


def _fits(reservation: CapacityReservation, launch: Any) -> bool:
    group = str(reservation.placement_group_arn or "").rpartition("/")[2]
    return bool(
        reservation.instance_type == launch.instance_type
        and reservation.availability_zone == launch.subnet.availability_zone
        and group == launch.placement_group
        and reservation.tenancy == launch.tenancy
    )


def _capacity_exceeded() -> Refusal:
    """Return ReservationCapacityExceeded with the text of AWS.

    Source: hashicorp/terraform-provider-aws#35745. From this text we conclude that AWS also
    refuses a reservation outside its time with this error.
    """
    return Refusal(
        "ReservationCapacityExceeded",
        "The requested reservation does not have sufficient compatible and available capacity for"
        " this request.",
    )
