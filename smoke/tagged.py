"""A search for what exists with a cluster's tag, without gpuctl's records."""

from config.cluster.resolved import CLUSTER_TAG
from config.polling import Timeouts, poll
from config.target import Target
from provision.aws.clients import aws_errors, client
from provision.aws.resources import find_all

PATIENCE = Timeouts(60, 5)
"""How long AWS may list what it has deleted, such as the volume of an instance that ended."""


def tagged(target: Target, cluster: str) -> tuple[str, ...]:
    """Return `kind id` of everything that exists with the cluster's tag.

    AWS is asked for each kind that gpuctl creates, and for the volumes that instances bring.
    """
    resources = [f"{resource.kind} {resource.id}" for resource in find_all(target, cluster)]
    ec2 = client(target, "ec2")
    with aws_errors():
        volumes = ec2.describe_volumes(
            Filters=[{"Name": f"tag:{CLUSTER_TAG}", "Values": [cluster]}]
        )["Volumes"]
    return (*resources, *(f"volume {volume['VolumeId']}" for volume in volumes))


def left_behind(target: Target, cluster: str) -> tuple[str, ...]:
    """Return `kind id` of what has the tag even after AWS had time to forget deleted resources."""
    left: tuple[str, ...] = ()

    def is_empty() -> bool | None:
        nonlocal left
        left = tagged(target, cluster)
        return None if left else True

    poll(is_empty, PATIENCE)
    return left
