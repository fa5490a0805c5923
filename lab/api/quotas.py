"""The lab's Service Quotas, and the vCPU quotas that limit launches.

Codes and names: AWS, "Amazon EC2 On-Demand Instances quotas", "Spot Instance quotas", "Amazon VPC
quotas" (https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/ec2-instance-quotas.html and the pages
next to it; skypilot-catalog's instance_quota_mapping.csv for P, G, Trn and Inf). The lab's account
has high quotas; the fault `vcpu-quota` sets a small one for a rehearsal.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from moto.ec2.models.instance_types import INSTANCE_TYPES

from lab.api.errors import Refusal
from lab.api.faults import Faults

VCPUS = 1_000_000
ELASTIC_IPS = 1_000
VPCS = 1_000


@dataclass(frozen=True)
class LabQuota:
    """A quota of the account in a region. `families` are the types' letters that it counts."""

    service: str
    code: str
    name: str
    value: int
    fault: str
    families: frozenset[str] = frozenset()
    spot: bool = False


def _vcpus(code: str, name: str, families: str, *, spot: bool = False) -> LabQuota:
    return LabQuota("ec2", code, name, VCPUS, "vcpu-quota", frozenset(families.split()), spot)


QUOTAS = (
    _vcpus("L-1216C47A", "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z) instances",
           "a c d h i m r t z im is"),
    _vcpus("L-DB2E81BA", "Running On-Demand G and VT instances", "g gr vt"),
    _vcpus("L-417A185B", "Running On-Demand P instances", "p"),
    _vcpus("L-1945791B", "Running On-Demand Inf instances", "inf"),
    _vcpus("L-2C3B7624", "Running On-Demand Trn instances", "trn"),
    _vcpus("L-7295265B", "Running On-Demand X instances", "x"),
    _vcpus("L-F7808C92", "Running On-Demand HPC instances", "hpc"),
    _vcpus("L-34B43A08", "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Requests",
           "a c d h i m r t z im is", spot=True),
    _vcpus("L-3819A6DF", "All G and VT Spot Instance Requests", "g gr vt", spot=True),
    _vcpus("L-7212CCBC", "All P4, P3 and P2 Spot Instance Requests", "p4 p3 p2", spot=True),
    _vcpus("L-C4BD4855", "All P5 Spot Instance Requests", "p5 p6", spot=True),
    _vcpus("L-B5D1601B", "All Inf Spot Instance Requests", "inf", spot=True),
    _vcpus("L-6B0D517C", "All Trn Spot Instance Requests", "trn", spot=True),
    LabQuota("ec2", "L-0263D0A3", "EC2-VPC Elastic IPs", ELASTIC_IPS, "elastic-ip-limit"),
    LabQuota("vpc", "L-F678F1CE", "VPCs per Region", VPCS, "vpc-limit"),
)  # fmt: skip


class NotFound(Exception):
    """An error: Service Quotas has no such quota."""


def answer(action: str, request: Mapping[str, Any], faults: Faults, region: str) -> dict[str, Any]:
    """Return Service Quotas' answer; NotFound for a quota, KeyError for an unknown action."""
    service = request.get("ServiceCode")
    known = [quota for quota in QUOTAS if quota.service == service]
    if action == "ListServiceQuotas":
        return {"Quotas": [_description(quota, faults, region) for quota in known]}
    if action == "GetServiceQuota":
        for quota in known:
            if quota.code == request.get("QuotaCode"):
                return {"Quota": _description(quota, faults, region)}
        raise NotFound
    raise KeyError(action)


def limit(quota: LabQuota, faults: Faults) -> int:
    """Return the quota's current value, which a fault may override."""
    fault = faults.number(quota.fault)
    return quota.value if fault is None else fault


def _description(quota: LabQuota, faults: Faults, region: str) -> dict[str, Any]:
    return {
        "ServiceCode": quota.service,
        "ServiceName": {
            "ec2": "Amazon Elastic Compute Cloud (Amazon EC2)",
            "vpc": "Amazon Virtual Private Cloud (Amazon VPC)",
        }[quota.service],
        "QuotaArn": f"arn:aws:servicequotas:{region}:123456789012:{quota.service}/{quota.code}",
        "QuotaCode": quota.code,
        "QuotaName": quota.name,
        "Value": float(limit(quota, faults)),
        "Unit": "None",
        "Adjustable": True,
        "GlobalQuota": False,
    }


def vcpu_quota(instance_type: str, spot: bool) -> LabQuota | None:
    """Return the quota that counts the type's vCPUs; None if the lab has none for it."""
    stem = re.match(r"([a-z]+)([0-9]*)", instance_type)
    names = {stem[1], stem[0]} if stem else set()
    return next((q for q in QUOTAS if q.spot == spot and names & q.families), None)


def check_vcpus(backend: Any, instance_type: str, count: int, spot: bool = False) -> None:
    """Raise VcpuLimitExceeded if the account's quota has no room for `count` more of the type.

    Spot instances have another code: MaxSpotInstanceCountExceeded.
    """
    quota = vcpu_quota(instance_type, spot)
    if quota is None:
        return
    most = limit(quota, backend.lab.faults)
    if _used_vcpus(backend, quota) + count * _vcpus_of(instance_type) <= most:
        return
    if spot:
        raise Refusal("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded")
    raise Refusal(
        "VcpuLimitExceeded",
        f"You have requested more vCPU capacity than your current vCPU limit of {most} allows for"
        " the instance bucket that the specified instance type belongs to. Please visit"
        " http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit.",
    )


def _used_vcpus(backend: Any, quota: LabQuota) -> int:
    """Return the vCPUs of running instances and of reservations; capacity blocks do not count."""
    held = [r for r in backend.capacity_reservations.values() if r.holds_room]
    used: int = sum(
        r.total * _vcpus_of(r.instance_type)
        for r in held
        if r.kind == "default" and vcpu_quota(r.instance_type, False) is quota
    )
    inside = {r.id for r in held}
    return used + sum(
        _vcpus_of(instance.instance_type)
        for instance in backend.all_instances()
        if instance.state in ("pending", "running")
        and instance.capacity_reservation_id not in inside
        and vcpu_quota(instance.instance_type, instance.lifecycle == "spot") is quota
    )


def _vcpus_of(instance_type: str) -> int:
    return int(INSTANCE_TYPES[instance_type]["VCpuInfo"]["DefaultVCpus"])
