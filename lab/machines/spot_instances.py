"""The running lab's spot instances, by the names that people use."""

from collections.abc import Sequence
from typing import Any

import boto3

from config.errors import InputError
from config.target import Target


def instance_ids(names: Sequence[str], target: Target) -> tuple[str, ...]:
    """Return the ids of running spot instances, given by id or by node name (`demo-node1`).

    Raise InputError for a name that no spot instance in the target's region has.
    """
    ec2 = boto3.client(
        "ec2",
        endpoint_url=target.endpoint,
        region_name=target.region,
        aws_access_key_id=target.environment["AWS_ACCESS_KEY_ID"],
        aws_secret_access_key=target.environment["AWS_SECRET_ACCESS_KEY"],
    )
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )
    known: dict[str, str] = {}
    for one in (i for page in pages for r in page["Reservations"] for i in r["Instances"]):
        if one.get("InstanceLifecycle") == "spot":
            known[one["InstanceId"]] = known[_name(one)] = one["InstanceId"]
    for name in names:
        if name not in known:
            there = ", ".join(sorted(key for key in known if not key.startswith("i-")))
            raise InputError(
                f"no spot instance '{name}' runs in {target.region} of the lab",
                f"there are: {there}" if there else "bring one up: `capacity: {type: spot}`",
            )
    return tuple(known[name] for name in names)


def _name(instance: Any) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags") or ()}
    return str(tags.get("Name") or instance["InstanceId"])
