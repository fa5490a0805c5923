"""Spot instances that AWS takes back: the notice, the request's status, and the end.

Sources: "Spot Instance interruption notices" and "Get the status of a Spot Instance request" of the
EC2 User Guide, DescribeSpotInstanceRequests and StateReason of the API's reference (all read
2026-11-20).
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.utils import generic_filter

from lab.api.faults import NOTICE_S

log = logging.getLogger(__name__)

REASON = "Server.SpotInstanceTermination"
"""The state reason of an instance that was taken back."""

_LOOK_S = 1.0
"""How often the lab looks whether an instance's time has come."""


@dataclass(frozen=True)
class SpotRequest:
    """The request that RunInstances made for one spot instance; its status follows the instance."""

    instance: Any

    def shown(self) -> dict[str, Any]:
        """EC2's SpotInstanceRequest."""
        instance, (state, code, message, since) = self.instance, self._status()
        return {
            "SpotInstanceRequestId": instance.spot_instance_request_id,
            "InstanceId": instance.id,
            "Type": "one-time",
            "InstanceInterruptionBehavior": "terminate",
            "State": state,
            "Status": {"Code": code, "Message": message, "UpdateTime": since},
            "CreateTime": instance.launch_time,
            "LaunchedAvailabilityZone": instance.availability_zone,
            "ProductDescription": "Linux/UNIX",
        }

    def get_filter_value(self, name: str) -> Any:
        """What moto compares a filter with."""
        told = self.shown()
        values = {
            "instance-id": told["InstanceId"],
            "spot-instance-request-id": told["SpotInstanceRequestId"],
            "state": told["State"],
            "status-code": told["Status"]["Code"],
        }
        if name not in values:
            raise NotImplementedError(f"DescribeSpotInstanceRequests' filter {name}")
        return values[name]

    def _status(self) -> tuple[str, str, str, datetime]:
        """State, status code, its text, and since when."""
        instance = self.instance
        notice = instance.ec2_backend.notice_of(instance)
        if instance.state_reason.code == REASON:
            text = (
                "Your Spot Instance was terminated because there is no Spot capacity available that"
                " matches your request."
            )
            return "closed", "instance-terminated-no-capacity", text, instance.taken_back
        if instance.state in ("shutting-down", "terminated"):
            text = "Your Spot Instance was terminated by user."
            return "closed", "instance-terminated-by-user", text, instance.launch_time
        if notice is not None:
            # Where a rehearsal gives less time, the notice is shown as if it had been in time.
            since = notice - timedelta(seconds=NOTICE_S)
            text = "Your Spot Instance is marked for termination."
            return "active", "marked-for-termination", text, since
        return "active", "fulfilled", "Your Spot request is fulfilled.", instance.launch_time


class SpotInstances:
    """The region's spot instances; part of the lab's EC2 backend."""

    lab: Any
    all_instances: Any

    def spot_requests(self) -> list[SpotRequest]:
        """One per spot instance, those that have ended too."""
        return [SpotRequest(one) for one in self.all_instances() if one.lifecycle == "spot"]

    def notice_of(self, instance: Any) -> datetime | None:
        """When the instance is taken back; None for one that may stay, or is no spot instance."""
        notice = self.lab.faults.notice()
        if notice is None or instance.lifecycle != "spot" or instance.id not in notice.instances:
            return None
        return notice.at  # type: ignore[no-any-return]

    def take_back_due(self) -> None:
        """Every instance whose time has come shuts down, as AWS ends it."""
        if self.lab.faults.notice() is None:
            return
        now = datetime.now(UTC)
        for request in self.spot_requests():
            instance = request.instance
            at = self.notice_of(instance)
            if at is not None and now >= at and instance.state in ("pending", "running"):
                instance.taken_back = at
                instance.become("shutting-down", REASON, f"{REASON}: Spot instance termination")
                self.lab.machines.power_off(instance.id)


class SpotActions:
    """Part of the lab's EC2 responses."""

    ec2_backend: Any
    _get_param: Any
    _filters_from_querystring: Any

    def describe_spot_instance_requests(self) -> ActionResult:
        """DescribeSpotInstanceRequests, of what RunInstances launched."""
        found = self.ec2_backend.spot_requests()
        if ids := self._get_param("SpotInstanceRequestIds", []):
            found = [one for one in found if one.instance.spot_instance_request_id in ids]
        found = generic_filter(self._filters_from_querystring(), found)
        return ActionResult({"SpotInstanceRequests": [one.shown() for one in found]})


class Interruptions:
    """Takes back what the lab was told to, when its time has come, until closed."""

    def __init__(self, regions: Callable[[], Iterable[SpotInstances]]) -> None:
        self._regions = regions
        self._closed = Event()
        self._thread = Thread(target=self._look, name="spot interruptions", daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._closed.wait(_LOOK_S):
            try:
                for region in self._regions():
                    with region.lab.lock:
                        region.take_back_due()
            except Exception:
                log.exception("no spot instance could be taken back")

    def close(self) -> None:
        """Nothing is taken back any more."""
        self._closed.set()
        self._thread.join()
