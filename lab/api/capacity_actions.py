"""EC2's actions about capacity: reservations, capacity blocks and spot prices."""

import secrets
from datetime import UTC, datetime, timedelta
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.utils import add_tag_specification, generic_filter

from config.catalogue.instance_types import catalogue, price_usd_h
from lab.api.errors import Refusal, bad_value

SPOT_SHARE = 0.4
"""The lab's spot price as a share of the on-demand price; each further zone adds 0.02."""


class CapacityActions:
    """The actions about capacity; part of the lab's EC2 responses."""

    ec2_backend: Any
    region: Any
    _get_param: Any
    _get_params: Any
    _filters_from_querystring: Any
    error_on_dryrun: Any

    def create_capacity_reservation(self) -> ActionResult:
        """Answer CreateCapacityReservation."""
        self.error_on_dryrun()
        parameters = {key: value for key, value in self._get_params().items() if value is not None}
        self._check_offered(parameters)
        parameters["EndDate"] = _moment(parameters.get("EndDate"))
        tags = add_tag_specification(self._get_param("TagSpecifications", []))
        made = self.ec2_backend.create_capacity_reservation(parameters, tags)
        return ActionResult({"CapacityReservation": made.description()})

    def describe_capacity_reservations(self) -> ActionResult:
        """Answer DescribeCapacityReservations; InvalidCapacityReservationId.NotFound for an id."""
        reservations = list(self.ec2_backend.capacity_reservations.values())
        if ids := self._get_param("CapacityReservationIds", []):
            reservations = [self.ec2_backend.capacity_reservation(id_) for id_ in ids]
        reservations = generic_filter(self._filters_from_querystring(), reservations)
        return ActionResult(
            {"CapacityReservations": [reservation.description() for reservation in reservations]}
        )

    def cancel_capacity_reservation(self) -> ActionResult:
        """Answer CancelCapacityReservation."""
        self.error_on_dryrun()
        self.ec2_backend.cancel_capacity_reservation(self._get_param("CapacityReservationId"))
        return ActionResult({"Return": True})

    def describe_capacity_block_offerings(self) -> ActionResult:
        """Answer DescribeCapacityBlockOfferings: one offering per zone.

        It begins at StartDateRange, by default at the next 11:30 UTC. The lab also offers blocks
        that began in the past, so that a rehearsal can reach the end of a block.
        """
        kind = str(self._get_param("InstanceType"))
        count = int(self._get_param("InstanceCount") or 1)
        hours = int(self._get_param("CapacityDurationHours"))
        start = _moment(self._get_param("StartDateRange"))
        start = start or _next_start()
        entry = catalogue().get(kind)
        sold = entry is not None and "capacity-block" in entry.usage_classes
        known: dict[str, Any] = self.ec2_backend.capacity_block_offerings
        offers = []
        for zone in self._zones(kind) if sold else ():
            offer = _offering(kind, count, hours, start, zone)
            known[offer["CapacityBlockOfferingId"]] = offer
            offers.append(offer)
        return ActionResult({"CapacityBlockOfferings": offers})

    def purchase_capacity_block(self) -> ActionResult:
        """Answer PurchaseCapacityBlock for an offering's id."""
        self.error_on_dryrun()
        offering = str(self._get_param("CapacityBlockOfferingId"))
        known: dict[str, Any] = self.ec2_backend.capacity_block_offerings
        if offering not in known:
            raise Refusal(
                "InvalidCapacityBlockOfferingId.NotFound",
                f"The Capacity Block offering '{offering}' does not exist.",
            )
        parameters = {**known[offering], "InstancePlatform": self._get_param("InstancePlatform")}
        tags = add_tag_specification(self._get_param("TagSpecifications", []))
        made = self.ec2_backend.purchase_capacity_block(parameters, tags)
        return ActionResult({"CapacityReservation": made.description()})

    def describe_spot_price_history(self) -> ActionResult:
        """Answer DescribeSpotPriceHistory: one price per type and zone, since midnight UTC."""
        since = datetime.now(UTC).replace(hour=0, minute=0, second=0, microsecond=0)
        history = []
        for kind in self._get_param("InstanceTypes", []):
            entry, price = catalogue().get(kind), price_usd_h(kind)
            if price is None or (entry is not None and "spot" not in entry.usage_classes):
                continue
            for index, zone in enumerate(self._zones(kind)):
                history.append(
                    {
                        "AvailabilityZone": zone,
                        "InstanceType": kind,
                        "ProductDescription": "Linux/UNIX",
                        "SpotPrice": f"{price * (SPOT_SHARE + 0.02 * index):.6f}",
                        "Timestamp": since,
                    }
                )
        return ActionResult({"SpotPriceHistory": history})

    def _zones(self, kind: str) -> list[str]:
        offers = self.ec2_backend.describe_instance_type_offerings(
            "availability-zone", {"instance-type": [kind]}
        )
        return sorted(offer["Location"] for offer in offers)

    def _check_offered(self, parameters: dict[str, Any]) -> None:
        if parameters["AvailabilityZone"] not in self._zones(parameters["InstanceType"]):
            raise Refusal(
                "Unsupported",
                f"Your requested instance type ({parameters['InstanceType']}) is not supported in"
                f" your requested Availability Zone ({parameters['AvailabilityZone']}).",
            )


def _offering(kind: str, count: int, hours: int, start: datetime, zone: str) -> dict[str, Any]:
    return {
        "CapacityBlockOfferingId": f"cb-{secrets.token_hex(9)[:17]}",
        "InstanceType": kind,
        "InstanceCount": count,
        "AvailabilityZone": zone,
        "StartDate": start,
        "EndDate": start + timedelta(hours=hours),
        "CapacityBlockDurationHours": hours,
        "UpfrontFee": f"{(price_usd_h(kind) or 0) * count * hours:.2f}",
        "CurrencyCode": "USD",
        "Tenancy": "default",
    }


def _next_start() -> datetime:
    """Return the next 11:30 UTC: capacity blocks begin at that time on AWS."""
    today = datetime.now(UTC).replace(hour=11, minute=30, second=0, microsecond=0)
    return today if today > datetime.now(UTC) else today + timedelta(days=1)


def _moment(value: Any) -> datetime | None:
    """Return a request's time; UTC if the request names no time zone."""
    if value is None or isinstance(value, datetime):
        moment = value
    else:
        try:
            moment = datetime.fromisoformat(str(value))
        except ValueError:
            raise bad_value(f"{value} is not a time.") from None
    if moment is not None and moment.tzinfo is None:
        moment = moment.replace(tzinfo=UTC)
    return moment
