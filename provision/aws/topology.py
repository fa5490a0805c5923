"""The positions of instances in EC2's network, so that neighbouring ranks are near each other."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from config.errors import CloudError
from config.progress import Progress, Reporter
from nodes.inventory import Node
from provision.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

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
