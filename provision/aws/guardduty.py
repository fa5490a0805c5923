"""Amazon GuardDuty's own resources in a cluster's VPC: an endpoint, and its security group.

If an account monitors its instances at run time, GuardDuty creates them by itself when an instance
starts, and leaves them there when it ends. AWS deletes neither the subnet nor the VPC around them.
They have the tag GuardDutyManaged and none of gpuctl's; the VPC's tags name the cluster. Source:
https://github.com/hashicorp/terraform-provider-aws/pull/46953 and issue 46747 (2026-11-22).
"""

from collections.abc import Sequence
from typing import Any

from config.cluster.resolved import CLUSTER_TAG
from config.errors import CloudError
from config.polling import Timeouts, poll
from provision.aws.clients import aws_errors, call_unless_gone

ENDPOINT, GROUP = "GuardDuty endpoint", "GuardDuty security group"

DELETED = Timeouts(600, 5)
"""The wait for the end of endpoints that are being deleted."""

_MANAGED = {"Name": "tag:GuardDutyManaged", "Values": ["true"]}


def find_managed(ec2: Any, operation: str, answer: str, cluster: str | None) -> list[Any]:
    """Return AWS's descriptions of these resources in VPCs of `cluster` (None: of any cluster).

    Their tags are replaced with those of their VPC.
    """
    ours: dict[str, Any] = {"Name": "tag-key", "Values": [CLUSTER_TAG]}
    if cluster is not None:
        ours = {"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}
    with aws_errors():
        vpcs = {vpc["VpcId"]: vpc["Tags"] for vpc in ec2.describe_vpcs(Filters=[ours])["Vpcs"]}
        if not vpcs:
            return []
        in_vpcs = {"Name": "vpc-id", "Values": list(vpcs)}
        pages = ec2.get_paginator(operation).paginate(Filters=[in_vpcs, _MANAGED])
        items = list(pages.search(f"{answer}[]"))
    return [{**item, "Tags": vpcs[item["VpcId"]]} for item in items]


def delete_endpoints(ec2: Any, ids: Sequence[str]) -> None:
    """Delete the endpoints and wait for their end: their interfaces occupy the subnet until then.

    Raises CloudError with the permission that is missing, or after ten minutes.
    """
    with aws_errors():
        failed = ec2.delete_vpc_endpoints(VpcEndpointIds=list(ids))["Unsuccessful"]
    for failure in failed:
        code = str(failure["Error"]["Code"])
        raise CloudError(
            f"AWS refused to delete GuardDuty's endpoint {failure['ResourceId']}, which keeps the"
            f" cluster's VPC: {code}: {failure['Error']['Message']}",
            "delete the endpoint, or let an administrator allow ec2:DeleteVpcEndpoints; then"
            " repeat `gpuctl down`",
            code,
        )

    def are_deleted() -> bool | None:
        left = call_unless_gone(lambda: _describe(ec2, ids), ("InvalidVpcEndpointId.NotFound",))
        return all(resource["State"] == "deleted" for resource in left or ()) or None

    if not poll(are_deleted, DELETED):
        raise CloudError(
            f"GuardDuty's endpoints {', '.join(ids)} still exist after 10 minutes",
            "repeat `gpuctl down` later",
        )


def _describe(ec2: Any, ids: Sequence[str]) -> list[Any]:
    endpoints: list[Any] = ec2.describe_vpc_endpoints(VpcEndpointIds=list(ids))["VpcEndpoints"]
    return endpoints
