"""The quota checks before anything is created: vCPUs, Elastic IP addresses, VPCs.

Counting of vCPUs and names of quotas: AWS, "Amazon EC2 On-Demand Instances quotas" and "Spot
Instance quotas" (https://docs.aws.amazon.com/ec2/latest/instancetypes/ec2-instance-quotas.html,
read 2026-11-20). Names are parsed as AWS writes them: "Running On-Demand G and VT instances".
"""

import re
from collections import Counter
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from config.catalogue.instance_types import BASTION_TYPE, catalogue
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import CLUSTER_TAG, InstanceType
from config.command_text import command_text
from config.errors import CloudError, InputError
from provision.aws.clients import aws_errors

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client
    from mypy_boto3_ec2.type_defs import InstanceTypeDef

ELASTIC_IPS = ("ec2", "L-0263D0A3")
VPCS = ("vpc", "L-F678F1CE")
"""Service and code: "EC2-VPC Elastic IPs", "VPCs per Region"."""

BASTION_VCPUS = 2

_NAMED_WITH = {"im": "i", "is": "i", "gr": "g"}
"""Instance families that AWS counts under the letter of another family."""


@dataclass(frozen=True)
class Clients:
    """The clients of EC2, which knows the use, and of Service Quotas, which knows the limits."""

    ec2: "EC2Client"
    quotas: Any


@dataclass(frozen=True)
class AppliedQuota:
    """A quota as it applies to the account in a region."""

    service: str
    code: str
    name: str
    value: int

    def counts(self, instance_type: str) -> bool:
        """Return whether the quota counts the type's vCPUs, judged by the quota's name."""
        words = {word.lower() for word in re.findall(r"[A-Za-z][A-Za-z0-9]*", self.name)}
        stem = re.match(r"([a-z]+)([0-9]*)", instance_type)
        if stem is None:
            return False
        return bool({stem[0], stem[1], _NAMED_WITH.get(stem[1], stem[1])} & words)


def check_vcpus(cluster: Cluster, instance: InstanceType, ask: Clients) -> None:
    """Raise InputError if the vCPU quota is too small for the nodes and all other instances.

    Capacity blocks and existing reservations are not checked: blocks count against no quota, and
    reservations already count. Raises CloudError if the quota cannot be read or is not known.
    """
    if cluster.capacity.type not in ("on-demand", "spot"):
        return
    spot = cluster.capacity.type == "spot"
    quota = _vcpu_quota(ask.quotas, instance.name, spot)
    needed = cluster.nodes * instance.vcpus
    if not spot and cluster.network.has_bastion and quota.counts(BASTION_TYPE):
        needed += BASTION_VCPUS
    used = _used_vcpus(ask.ec2, quota, cluster.name, spot)
    if used + needed > quota.value:
        raise InputError(
            f"vCPUs: {cluster.nodes} x {instance.name} needs {needed},"
            f" the quota {_named(quota)} is {quota.value} in {ask.ec2.meta.region_name}"
            f" of which {used} in use",
            _ask_for(quota, used + needed, ask),
        )


def check_elastic_ips(cluster: Cluster, needed: int, ask: Clients) -> None:
    """Raise InputError if the quota has no room for `needed` more Elastic IP addresses.

    Raises CloudError if AWS does not answer.
    """
    if needed == 0:
        return
    quota = _quota(ask.quotas, *ELASTIC_IPS)
    with aws_errors():
        addresses = ask.ec2.describe_addresses()["Addresses"]
    used = sum(not _is_own(address, cluster.name) for address in addresses)
    _check(quota, "Elastic IP addresses", needed, used, ask)


def check_vpcs(cluster: Cluster, ask: Clients) -> None:
    """Raise InputError if the cluster creates a VPC and the quota has no room for it.

    Raises CloudError if AWS does not answer.
    """
    if cluster.network.exists:
        return
    quota = _quota(ask.quotas, *VPCS)
    with aws_errors():
        pages = ask.ec2.get_paginator("describe_vpcs").paginate()
        used = sum(not _is_own(vpc, cluster.name) for vpc in pages.search("Vpcs[]"))
    _check(quota, "VPCs", 1, used, ask)


def _check(quota: AppliedQuota, what: str, needed: int, used: int, ask: Clients) -> None:
    if used + needed > quota.value:
        raise InputError(
            f"{what}: {needed} more needed, the quota {_named(quota)} is {quota.value} in"
            f" {ask.ec2.meta.region_name} of which {used} in use",
            f"remove unused ones, or {_ask_for(quota, used + needed, ask)}",
        )


def _named(quota: AppliedQuota) -> str:
    return f'"{quota.name}" ({quota.code})'


def _ask_for(quota: AppliedQuota, value: int, ask: Clients) -> str:
    command = (
        "aws service-quotas request-service-quota-increase --service-code {} --quota-code {}"
        " --desired-value {} --region {}"
    )
    region = ask.ec2.meta.region_name
    shown = command_text(command, quota.service, quota.code, value, region)
    return f"ask for {value} or more: {shown}"


def _vcpu_quota(quotas: Any, instance_type: str, spot: bool) -> AppliedQuota:
    """Find the quota by the catalogue's code, or by name among all of EC2's quotas."""
    entry = catalogue().get(instance_type)
    code = (entry.quota.spot if spot else entry.quota.on_demand) if entry else None
    if code:
        return _quota(quotas, "ec2", code)
    kind_of_name = re.compile("Spot Instance Requests$" if spot else "^Running On-Demand ")
    with aws_errors():
        pages = quotas.get_paginator("list_service_quotas").paginate(ServiceCode="ec2")
        for quota in map(_read, pages.search("Quotas[]")):
            if kind_of_name.search(quota.name) and quota.counts(instance_type):
                return quota
    kind = "spot" if spot else "on-demand"
    raise CloudError(f"no {kind} vCPU quota that counts {instance_type} is known", "")


def _quota(quotas: Any, service: str, code: str) -> AppliedQuota:
    with aws_errors():
        return _read(quotas.get_service_quota(ServiceCode=service, QuotaCode=code)["Quota"])


def _read(item: Any) -> AppliedQuota:
    return AppliedQuota(
        item["ServiceCode"], item["QuotaCode"], item["QuotaName"], int(item["Value"])
    )


def _used_vcpus(ec2: "EC2Client", quota: AppliedQuota, cluster: str, spot: bool) -> int:
    """Return the vCPUs of all running instances, except the cluster's, that the quota counts."""
    with aws_errors():
        instances = ec2.get_paginator("describe_instances").paginate(
            Filters=[{"Name": "instance-state-name", "Values": ["pending", "running"]}]
        )
        kinds = Counter(
            str(instance["InstanceType"])
            for instance in instances.search("Reservations[].Instances[]")
            if not _is_own(instance, cluster) and _is_counted(instance, quota, spot)
        )
        if not kinds:
            return 0
        types = ec2.get_paginator("describe_instance_types").paginate(
            Filters=[{"Name": "instance-type", "Values": list(kinds)}]
        )
        described = list(types.search("InstanceTypes[]"))
    vcpus = {kind["InstanceType"]: kind["VCpuInfo"]["DefaultVCpus"] for kind in described}
    return sum(count * vcpus.get(name, 0) for name, count in kinds.items())


def _is_counted(instance: "InstanceTypeDef", quota: AppliedQuota, spot: bool) -> bool:
    lifecycle = instance.get("InstanceLifecycle")
    if lifecycle == "capacity-block":
        return False
    return (lifecycle == "spot") == spot and quota.counts(str(instance["InstanceType"]))


def _is_own(resource: Any, cluster: str) -> bool:
    """Return whether the cluster already has the resource, so that `up` needs no more for it."""
    return {"Key": CLUSTER_TAG, "Value": cluster} in resource.get("Tags", ())
