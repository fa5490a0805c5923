"""The running lab's instances, by the names that people use."""

from collections.abc import Sequence
from typing import Any

import boto3

from config.errors import InputError
from config.target import Target


def instance_ids(names: Sequence[str], target: Target, spot: bool = False) -> tuple[str, ...]:
    """Return the ids of running instances, given by id or by name, and with `spot` of spot alone.

    A name is `demo-node1`, or `node1` where one cluster alone has it. Raise InputError for a name
    that no such instance in the target's region has.
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
    short: dict[str, list[str]] = {}
    for one in (i for page in pages for r in page["Reservations"] for i in r["Instances"]):
        if not spot or one.get("InstanceLifecycle") == "spot":
            name = _name(one)
            known[one["InstanceId"]] = known[name] = one["InstanceId"]
            short.setdefault(name.rpartition("-")[2], []).append(one["InstanceId"])
    named = {name: ids[0] for name, ids in short.items() if len(ids) == 1} | known
    for name in names:
        if name not in named:
            there = ", ".join(sorted(key for key in known if not key.startswith("i-")))
            raise InputError(
                f"no {'spot ' if spot else ''}instance '{name}' runs in {target.region} of the lab",
                f"there are: {there}" if there else "bring one up: " + _UP[spot],
            )
    return tuple(named[name] for name in names)


_UP = {True: "`capacity: {type: spot}`", False: "`gpuctl --lab up FILE`"}


def _name(instance: Any) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags") or ()}
    return str(tags.get("Name") or instance["InstanceId"])
