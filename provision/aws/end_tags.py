"""The tag with the time at which a machine powers off, for clients that have no record of it."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import groupby

from config.cluster.resolved import ENDS_TAG
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.resources import Resource


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
