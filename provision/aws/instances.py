"""EC2's answers about single machines: how they ended, when they will end, and their place.

This needs neither ssh nor a run. Neighbouring ranks are near each other in EC2's network.
"""

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from itertools import groupby
from typing import TYPE_CHECKING, Any

from config.cluster.resolved import ENDS_TAG
from config.errors import CloudError
from config.progress import Progress, Reporter
from config.target import Target
from nodes.inventory import Node
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


MOST_IDS = 100
"""The most ids of one request; the answer comes in pages of 20 (DescribeInstanceTopology,
InstanceIds and MaxResults, EC2's API reference, 2026-11-26)."""


def add_topology(
    ec2: "EC2Client", cluster: str, nodes: Sequence[Node], report: Reporter
) -> tuple[Node, ...]:
    """Return the nodes with the network nodes above them, from the top.

    EC2 reports none for types that this API does not support and for instances that do not run. If
    EC2 refuses, for example without the permission `ec2:DescribeInstanceTopology`, the nodes are
    returned unchanged: ranks are in the order of launch, and progress reports that.
    """
    if len(nodes) < 2:
        return tuple(nodes)
    report(Progress("topology", cluster, "running"))
    ids = [node.instance_id for node in nodes]
    above: dict[str, tuple[str, ...]] = {}
    try:
        for start in range(0, len(ids), MOST_IDS):
            pages = ec2.get_paginator("describe_instance_topology").paginate(
                InstanceIds=ids[start : start + MOST_IDS]
            )
            with aws_errors():
                for instance in pages.search("Instances[]"):
                    above[instance.get("InstanceId", "")] = tuple(
                        instance.get("NetworkNodes") or ()
                    )
    except CloudError as error:
        report(Progress("topology", cluster, "done", f"ranks in the order of launch: {error}"))
        return tuple(nodes)
    lowest = {layers[-1] for layers in above.values() if layers}
    detail = f"below {len(lowest)} network nodes" if lowest else "EC2 reports none for this type"
    report(Progress("topology", cluster, "done", detail))
    return tuple(
        node.model_copy(update={"topology": above.get(node.instance_id, ())}) for node in nodes
    )
