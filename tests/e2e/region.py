"""What exists in the lab's region, asked of its API directly and not through gpuctl."""

from typing import Any

import boto3

from lab import state
from tests.e2e.conftest import Gpuctl


def ec2(gpuctl: Gpuctl) -> Any:
    """A boto3 client of the lab's EC2."""
    return client(gpuctl, "ec2")


def client(gpuctl: Gpuctl, service: str) -> Any:
    """A boto3 client of one of the lab's services."""
    record = state.record(gpuctl.lab)
    assert record, "the lab is down"
    made: Any = boto3.client  # its stubs know services by their names alone
    return made(
        service,
        region_name="us-east-1",
        endpoint_url=record.api_url,
        aws_access_key_id=record.key.key_id,
        aws_secret_access_key=record.key.secret,
    )


def what_bills(gpuctl: Gpuctl, cluster: str) -> dict[str, int]:
    """How many of each kind of thing with the cluster's tag exist; empty when nothing does."""
    client = ec2(gpuctl)
    tag = [{"Name": "tag:gpuctl:cluster", "Values": [cluster]}]
    live = {"pending", "running", "shutting-down", "stopping", "stopped"}
    counts = {
        "instances": sum(
            instance["State"]["Name"] in live
            for reservation in client.describe_instances(Filters=tag)["Reservations"]
            for instance in reservation["Instances"]
        ),
        "nat gateways": sum(
            gateway["State"] != "deleted"
            for gateway in client.describe_nat_gateways(Filters=tag)["NatGateways"]
        ),
        "addresses": len(client.describe_addresses(Filters=tag)["Addresses"]),
        "vpcs": len(client.describe_vpcs(Filters=tag)["Vpcs"]),
        "subnets": len(client.describe_subnets(Filters=tag)["Subnets"]),
        "placement groups": len(client.describe_placement_groups(Filters=tag)["PlacementGroups"]),
        "launch templates": len(client.describe_launch_templates(Filters=tag)["LaunchTemplates"]),
        "key pairs": len(client.describe_key_pairs(Filters=tag)["KeyPairs"]),
    }
    return {kind: count for kind, count in counts.items() if count}
