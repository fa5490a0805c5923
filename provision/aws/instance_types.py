"""Instance types in EC2: their properties, and the zones that offer them."""

import difflib
from collections.abc import Iterable
from typing import TYPE_CHECKING

from config.catalogue.instance_types import price_usd_h
from config.cluster.resolved import InstanceType, NetworkCard
from config.errors import InputError
from provision.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeInfoTypeDef


def instance_type(ec2: "EC2Client", name: str) -> InstanceType:
    """Return the instance type as EC2 describes it.

    Raises InputError with the nearest names if the region does not know the name.
    """
    with aws_errors():
        # With a filter EC2 answers an unknown name with an empty list, not with an error.
        descriptions = ec2.describe_instance_types(
            Filters=[{"Name": "instance-type", "Values": [name]}]
        )["InstanceTypes"]
    if not descriptions:
        names = difflib.get_close_matches(name, _offered(ec2), n=3, cutoff=0.6)
        raise InputError(
            f"instance type {name} does not exist in {ec2.meta.region_name}",
            f"did you mean {' or '.join(names)}?" if names else "choose another type or region",
        )
    return read_instance_type(descriptions[0])


def _offered(ec2: "EC2Client") -> list[str]:
    """Return every instance type that the region offers."""
    with aws_errors():
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="region"
        )
        return sorted(pages.search("InstanceTypeOfferings[].InstanceType"))


def read_instance_type(entry: "InstanceTypeInfoTypeDef") -> InstanceType:
    """Convert one entry of DescribeInstanceTypes to gpuctl's model."""
    network = entry.get("NetworkInfo", {})
    gpus = entry.get("GpuInfo", {}).get("Gpus", [])
    name = str(entry.get("InstanceType", ""))
    return InstanceType(
        name=name,
        vcpus=entry.get("VCpuInfo", {}).get("DefaultVCpus", 0),
        memory_mib=entry.get("MemoryInfo", {}).get("SizeInMiB", 0),
        gpus=sum(gpu.get("Count", 0) for gpu in gpus),
        gpu_model=" ".join(
            filter(None, (gpus[0].get("Manufacturer"), gpus[0].get("Name"))) if gpus else ()
        ),
        architecture=_architecture(entry),
        max_efa=network.get("EfaInfo", {}).get("MaximumEfaInterfaces", 0)
        if network.get("EfaSupported")
        else 0,
        cards=tuple(
            NetworkCard(
                index=card.get("NetworkCardIndex", 0),
                max_interfaces=card.get("MaximumNetworkInterfaces", 1),
                interface_types=tuple(str(t) for t in card.get("InterfaceTypes", ())),
            )
            for card in network.get("NetworkCards", ())
        ),
        boot_modes=tuple(str(mode) for mode in entry.get("SupportedBootModes", ())),
        placement_strategies=tuple(
            str(strategy)
            for strategy in entry.get("PlacementGroupInfo", {}).get("SupportedStrategies", ())
        ),
        local_disks=_local_disks(entry),
        price_usd_h=price_usd_h(name),
    )


def _local_disks(entry: "InstanceTypeInfoTypeDef") -> int:
    """Return the number of NVMe instance store volumes; volumes of old types are not NVMe."""
    storage = entry.get("InstanceStorageInfo", {})
    if storage.get("NvmeSupport") not in ("required", "supported"):
        return 0
    return sum(disk.get("Count", 0) for disk in storage.get("Disks", ()))


def _architecture(entry: "InstanceTypeInfoTypeDef") -> str:
    """Return the 64-bit architecture; old types also list i386."""
    supported = entry.get("ProcessorInfo", {}).get("SupportedArchitectures", ())
    return next((str(a) for a in supported if a in ("x86_64", "arm64")), "x86_64")


def offers(ec2: "EC2Client", types: tuple[str, ...]) -> dict[str, frozenset[str]]:
    """Return the zones of the region that offer each of the types."""
    zones: dict[str, set[str]] = {name: set() for name in types}
    with aws_errors():
        pages = ec2.get_paginator("describe_instance_type_offerings").paginate(
            LocationType="availability-zone",
            Filters=[{"Name": "instance-type", "Values": list(types)}],
        )
        for offer in pages.search("InstanceTypeOfferings[]"):
            zones[offer["InstanceType"]].add(offer["Location"])
    return {name: frozenset(offering) for name, offering in zones.items()}


def availability_zones(region: str, zones: Iterable[str]) -> list[str]:
    """Return those that are availability zones, sorted: no Local Zone, and no Wavelength Zone.

    The code of an availability zone is its region's and a letter (us-east-1a); of the others it has
    a place too (us-east-1-atl-2a, us-east-1-wl1-bos-wlz-1). An account opts in to each of those,
    and needs no opt-in for an availability zone (AvailabilityZone's OptInStatus, EC2's API
    reference; https://docs.aws.amazon.com/global-infrastructure/latest/regions/
    aws-availability-zones.html, 2026-11-26).
    """
    return sorted(zone for zone in zones if zone[:-1] == region and zone[-1].isalpha())
