"""A search for what exists with a cluster's tag, without gpuctl's records."""

import time

from config.cluster.resolved import CLUSTER_TAG
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.resources import find_all

PATIENCE_S = 60.0
"""How long AWS may list what it has deleted, such as the volume of an instance that ended."""

_PAUSE_S = 5.0


def tagged(target: Target, cluster: str) -> tuple[str, ...]:
    """Return `kind id` of everything that exists with the cluster's tag.

    AWS is asked for each kind that gpuctl creates, and for the volumes that instances bring.
    """
    found = [f"{resource.kind} {resource.id}" for resource in find_all(target, cluster)]
    ec2 = client(target, "ec2")
    with aws_errors():
        volumes = ec2.describe_volumes(
            Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
        )["Volumes"]
    return (*found, *(f"volume {volume['VolumeId']}" for volume in volumes))


def left_behind(target: Target, cluster: str) -> tuple[str, ...]:
    """Return `kind id` of what has the tag even after AWS had time to forget deleted resources."""
    end = time.monotonic() + PATIENCE_S
    while left := tagged(target, cluster):
        if time.monotonic() > end:
            return left
        time.sleep(_PAUSE_S)
    return ()
