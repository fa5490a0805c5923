"""What EC2 says about single machines: how they ended, and when they will end.

This needs neither ssh nor a run.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from config.cluster.resolved import ENDS_TAG
from config.errors import CloudError
from config.target import Target
from provision.aws.clients import DENIED, aws_errors, client
from provision.aws.resources import ALIVE, Resource

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def instance_end(target: Target, instance_id: str) -> str:
    """Return how the instance ended (`is stopped: …`), with EC2's reason; empty while it runs.

    Raises CloudError if AWS cannot be asked.
    """
    for instance in _described(target, [instance_id]):
        state, reason = (
            str(instance["State"]["Name"]),
            instance.get("StateReason", {}).get("Message", ""),
        )
        if state in ALIVE:
            return ""
        return f"is {state}: {reason}" if reason else f"is {state}"
    return "does not exist any more"  # EC2 lists an ended instance for about an hour


def are_ended(target: Target, instance_ids: Sequence[str]) -> bool:
    """Return whether none of the instances runs. Raises CloudError if AWS cannot be asked."""
    instances = _described(target, instance_ids) if instance_ids else []
    return not any(instance["State"]["Name"] in ALIVE for instance in instances)


def _described(target: Target, instance_ids: Sequence[str]) -> list[Any]:
    """Return what EC2 knows of the instances; it leaves out what it has forgotten."""
    with aws_errors():
        pages = (
            client(target, "ec2", attempts=1)
            .get_paginator("describe_instances")
            .paginate(Filters=[{"Name": "instance-id", "Values": list(instance_ids)}])
        )
        return list(pages.search("Reservations[].Instances[]"))


NOTICE = timedelta(minutes=2)
"""The time from the notice to the end ("Spot Instance interruption notices", 2026-11-20:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html)."""

TAKEN_BACK = "Server.SpotInstanceTermination"
"""The state reason of an instance that AWS took back (StateReason, EC2 API reference,
2026-11-20)."""

_MARKED = ["marked-for-termination", "marked-for-stop"]


def notices(ec2: "EC2Client") -> dict[str, datetime] | None:
    """Return when AWS takes instances back, by instance id; None if the credentials may not ask.

    EC2 reports when the spot request was marked; AWS takes the instance back two minutes later.
    """
    try:
        with aws_errors():
            pages = ec2.get_paginator("describe_spot_instance_requests").paginate(
                Filters=[{"Name": "status-code", "Values": _MARKED}]
            )
            requests = list(pages.search("SpotInstanceRequests[]"))
    except CloudError as error:
        if error.code in DENIED:
            return None
        raise
    return {
        request["InstanceId"]: request["Status"]["UpdateTime"].astimezone(UTC) + NOTICE
        for request in requests
        if "InstanceId" in request
    }


def write_ends(ends: Mapping[str, datetime], target: Target) -> None:
    """Write the end of each machine, by its instance id, into its tag; raise CloudError if refused.

    CreateTags has one value for all its resources, so each end is one request.
    """
    ec2 = client(target, "ec2")
    for end, group in groupby(sorted(ends, key=ends.__getitem__), key=ends.__getitem__):
        value = end.astimezone(UTC).isoformat(timespec="seconds")
        with aws_errors():
            ec2.create_tags(Resources=list(group), Tags=[{"Key": ENDS_TAG, "Value": value}])


def end_of(instance: Resource) -> datetime | None:
    """Return the end in the instance's tag; None without the tag, or if it is no time."""
    tags = {tag["Key"]: tag["Value"] for tag in instance.attributes.get("Tags", ())}
    try:
        end = datetime.fromisoformat(tags[ENDS_TAG])
    except (KeyError, ValueError):  # anybody may write it
        return None
    return end if end.tzinfo else None
