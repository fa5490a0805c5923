"""AWS's interruption notices to spot instances, read from EC2: this needs neither ssh nor a run."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from config.errors import CloudError
from provision.aws.clients import DENIED, aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

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
