"""Spot instances that AWS reclaims: the notice, the request's status, and the termination.

Sources: "Spot Instance interruption notices" and "Get the status of a Spot Instance request" of the
EC2 User Guide, DescribeSpotInstanceRequests and StateReason of the API's reference (all read
2026-11-20); CancelSpotInstanceRequests of the reference (2026-11-26): "Canceling a Spot Instance
request does not terminate running Spot Instances associated with the request."
"""

import logging
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event, Thread
from typing import Any

from moto.core.responses import ActionResult
from moto.ec2.utils import generic_filter

from lab.api.errors import Refusal
from lab.fault_kinds import NOTICE_S

log = logging.getLogger(__name__)

REASON = "Server.SpotInstanceTermination"
"""The state reason of a reclaimed instance."""

_POLL_S = 1.0
"""The interval at which the lab checks whether to reclaim an instance."""


@dataclass(frozen=True)
class SpotRequest:
    """The request that RunInstances made for a spot instance; its status follows the instance."""

    instance: Any

    def description(self) -> dict[str, Any]:
        """Return the request as EC2's SpotInstanceRequest."""
        instance, (state, code, message, since) = self.instance, self._status()
        return {
            "SpotInstanceRequestId": self.id,
            "InstanceId": instance.id,
            "Type": "one-time",
            "InstanceInterruptionBehavior": "terminate",
            "State": state,
            "Status": {"Code": code, "Message": message, "UpdateTime": since},
            "CreateTime": instance.launch_time,
            "LaunchedAvailabilityZone": instance.availability_zone,
            "ProductDescription": "Linux/UNIX",
            "Tags": [{"Key": key, "Value": value} for key, value in sorted(self._tags().items())],
        }

    def get_filter_value(self, name: str) -> Any:
        """Return the value that moto compares with the filter `name`."""
        fields = self.description()
        values = {
            "instance-id": fields["InstanceId"],
            "spot-instance-request-id": fields["SpotInstanceRequestId"],
            "state": fields["State"],
            "status-code": fields["Status"]["Code"],
        }
        if name not in values:
            raise NotImplementedError(f"DescribeSpotInstanceRequests' filter {name}")
        return values[name]

    def _tags(self) -> dict[str, str]:
        """Return the tags of the request, which are not those of its instance."""
        tags: dict[str, str] = self.instance.ec2_backend.tags.get(self.id, {})
        return tags

    @property
    def id(self) -> str:
        """The request's id."""
        return str(self.instance.spot_instance_request_id)

    def _status(self) -> tuple[str, str, str, datetime]:
        """Return the state, the status code, its text, and the time of the last change."""
        instance = self.instance
        notice = instance.ec2_backend.notice_of(instance)
        ended = "cancelled" if instance.is_request_cancelled else "closed"
        if instance.state_reason.code == REASON:
            text = (
                "Your Spot Instance was terminated because there is no Spot capacity available that"
                " matches your request."
            )
            return ended, "instance-terminated-no-capacity", text, instance.reclaimed_at
        if instance.state in ("shutting-down", "terminated"):
            text = "Your Spot Instance was terminated by user."
            return ended, "instance-terminated-by-user", text, instance.launch_time
        if instance.is_request_cancelled:
            text = "Your Spot request is canceled, but your instance is still running."
            return ended, "request-canceled-and-instance-running", text, instance.launch_time
        if notice is not None:
            # A rehearsal may give less time than AWS: then the notice is dated back to AWS's time.
            since = notice - timedelta(seconds=NOTICE_S)
            text = "Your Spot Instance is marked for termination."
            return "active", "marked-for-termination", text, since
        return "active", "fulfilled", "Your Spot request is fulfilled.", instance.launch_time


class SpotInstances:
    """The region's spot instances; part of the lab's EC2 backend."""

    lab: Any
    all_instances: Any

    def spot_requests(self) -> list[SpotRequest]:
        """Return one request per spot instance, including terminated ones."""
        return [
            SpotRequest(instance)
            for instance in self.all_instances()
            if instance.lifecycle == "spot"
        ]

    def named_spot_requests(self, ids: Iterable[str]) -> list[SpotRequest]:
        """Return the requests with these ids; Refusal if there is no such request."""
        known = {request.id: request for request in self.spot_requests()}
        for request_id in ids:
            if request_id not in known:
                raise Refusal(
                    "InvalidSpotInstanceRequestID.NotFound",
                    f"The spot instance request ID '{request_id}' does not exist",
                )
        return [known[request_id] for request_id in ids]

    def notice_of(self, instance: Any) -> datetime | None:
        """Return the time at which the instance is reclaimed; None if no notice names it."""
        notice = self.lab.faults.notice()
        if notice is None or instance.lifecycle != "spot" or instance.id not in notice.instances:
            return None
        return notice.at  # type: ignore[no-any-return]

    def reclaim_due(self) -> None:
        """Terminate every instance whose notice has expired, as AWS does."""
        if self.lab.faults.notice() is None:
            return
        now = datetime.now(UTC)
        for request in self.spot_requests():
            instance = request.instance
            at = self.notice_of(instance)
            if at is not None and now >= at and instance.state in ("pending", "running"):
                instance.reclaimed_at = at
                instance.become("shutting-down", REASON, f"{REASON}: Spot instance termination")
                self.lab.machines.power_off(instance.id)


class SpotActions:
    """The actions on spot requests; part of the lab's EC2 responses."""

    ec2_backend: Any
    _get_param: Any
    _filters_from_querystring: Any

    def describe_spot_instance_requests(self) -> ActionResult:
        """Answer DescribeSpotInstanceRequests, for the instances that RunInstances launched."""
        ids = self._get_param("SpotInstanceRequestIds", [])
        ec2 = self.ec2_backend
        requests = ec2.named_spot_requests(ids) if ids else ec2.spot_requests()
        requests = generic_filter(self._filters_from_querystring(), requests)
        return ActionResult(
            {"SpotInstanceRequests": [request.description() for request in requests]}
        )

    def cancel_spot_instance_requests(self) -> ActionResult:
        """Answer CancelSpotInstanceRequests; the instances keep running."""
        ids = self._get_param("SpotInstanceRequestIds", [])
        for request in self.ec2_backend.named_spot_requests(ids):
            request.instance.is_request_cancelled = True
        cancelled = [{"SpotInstanceRequestId": id_, "State": "cancelled"} for id_ in ids]
        return ActionResult({"CancelledSpotInstanceRequests": cancelled})


class Interruptions:
    """A thread that reclaims spot instances when their notice expires, until closed."""

    def __init__(self, regions: Callable[[], Iterable[SpotInstances]]) -> None:
        self._regions = regions
        self._closed = Event()
        self._thread = Thread(target=self._poll, name="spot interruptions", daemon=True)
        self._thread.start()

    def _poll(self) -> None:
        while not self._closed.wait(_POLL_S):
            try:
                for region in self._regions():
                    with region.lab.lock:
                        region.reclaim_due()
            except Exception:
                log.exception("no spot instance could be taken back")

    def close(self) -> None:
        """Stop the thread."""
        self._closed.set()
        self._thread.join()
