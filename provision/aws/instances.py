"""Whether AWS says that a machine does not run any more."""

from collections.abc import Sequence
from typing import Any

from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.resources import ALIVE


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
