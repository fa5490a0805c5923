"""The running lab's instances, by the names that people use."""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from config.errors import InputError

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client


def instance_ids(names: Sequence[str], ec2: "EC2Client", spot: bool = False) -> tuple[str, ...]:
    """Return the ids of running instances, given by id or by name, and with `spot` of spot alone.

    A name is `demo-node1`, or `node1` where one cluster alone has it. Raise InputError for a name
    that no such instance in the client's region has.
    """
    pages = ec2.get_paginator("describe_instances").paginate(
        Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
    )
    known: dict[str, str] = {}
    short: dict[str, list[str]] = {}
    for instance in pages.search("Reservations[].Instances[]"):
        if not spot or instance.get("InstanceLifecycle") == "spot":
            name = _name(instance)
            known[instance["InstanceId"]] = known[name] = instance["InstanceId"]
            short.setdefault(name.rpartition("-")[2], []).append(instance["InstanceId"])
    named = {name: ids[0] for name, ids in short.items() if len(ids) == 1} | known
    for name in names:
        if name not in named:
            running = ", ".join(sorted(key for key in known if not key.startswith("i-")))
            raise InputError(
                f"no {'spot ' if spot else ''}instance '{name}' runs in {ec2.meta.region_name} of"
                " the lab",
                f"there are: {running}" if running else "bring one up: " + _UP[spot],
            )
    return tuple(named[name] for name in names)


_UP = {True: "`capacity: {type: spot}`", False: "`gpuctl --lab up FILE`"}


def _name(instance: Any) -> str:
    tags = {tag["Key"]: tag["Value"] for tag in instance.get("Tags") or ()}
    return str(tags.get("Name") or instance["InstanceId"])
