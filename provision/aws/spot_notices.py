"""AWS's notices to spot instances, asked of EC2: seen without ssh and without a run."""

from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from config.errors import CloudError
from provision.aws.clients import DENIED, aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

NOTICE = timedelta(minutes=2)
"""Between the notice and the end ("Spot Instance interruption notices", 2026-11-20:
https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/spot-instance-termination-notices.html)."""

TAKEN_BACK = "Server.SpotInstanceTermination"
"""State reason of an instance that AWS took back (StateReason, EC2 API reference, 2026-11-20)."""

_MARKED = ["marked-for-termination", "marked-for-stop"]


def notices(ec2: "EC2Client") -> dict[str, datetime] | None:
    """When AWS takes instances back, by instance id; None where the credentials may not ask.

    EC2 tells when the request was marked; the instance goes two minutes later.
    """
    try:
        with aws_errors():
            pages = ec2.get_paginator("describe_spot_instance_requests").paginate(
                Filters=[{"Name": "status-code", "Values": _MARKED}]
            )
            requests = [request for page in pages for request in page["SpotInstanceRequests"]]
    except CloudError as error:
        if error.code in DENIED:
            return None
        raise
    return {
        request["InstanceId"]: request["Status"]["UpdateTime"].astimezone(UTC) + NOTICE
        for request in requests
        if "InstanceId" in request
    }
