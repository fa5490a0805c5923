"""Step 1: who asks, which of gpuctl's actions AWS allows, and which quotas are too small.

Dry runs cost nothing and create nothing: EC2 checks the permission, and then refuses
(DryRun of CreateVpc and others in botocore's model of EC2, read 2026-11-23).
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from config.cluster.cluster_file import Cluster
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.clients import DENIED, aws_errors, client
from provision.aws.instance_types import instance_type
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.costs.prices import price
from provision.preflight.quotas import Clients, check_elastic_ips, check_vcpus, check_vpcs
from provision.preflight.ssh_access import needed_elastic_ips
from smoke.workplace import StepFailed, Workplace

_NONE = "0" * 17
"""An id that no resource has: requests that change something name no resource of anybody."""

_NAME = "gpuctl-aws-smoke"

DRY_RUNS: dict[str, dict[str, Any]] = {
    "create_vpc": {"CidrBlock": "10.213.0.0/16"},
    "create_internet_gateway": {},
    "create_subnet": {"VpcId": f"vpc-{_NONE}", "CidrBlock": "10.213.0.0/20"},
    "create_route_table": {"VpcId": f"vpc-{_NONE}"},
    "create_security_group": {
        "GroupName": _NAME, "Description": "dry run", "VpcId": f"vpc-{_NONE}",
    },
    "allocate_address": {"Domain": "vpc"},
    "create_nat_gateway": {"SubnetId": f"subnet-{_NONE}", "AllocationId": f"eipalloc-{_NONE}"},
    "create_placement_group": {"GroupName": _NAME, "Strategy": "cluster"},
    "import_key_pair": {"KeyName": _NAME, "PublicKeyMaterial": b"ssh-ed25519 AAAA dry-run"},
    "create_launch_template": {
        "LaunchTemplateName": _NAME, "LaunchTemplateData": {"InstanceType": "t3.small"},
    },
    "create_tags": {"Resources": [f"vpc-{_NONE}"], "Tags": [{"Key": "Name", "Value": _NAME}]},
    "terminate_instances": {"InstanceIds": [f"i-{_NONE}"]},
    "delete_vpc": {"VpcId": f"vpc-{_NONE}"},
}  # fmt: skip
"""Requests of EC2 that create or remove, by boto3's name. `_zonal` adds those with a zone."""

Verdict = Literal["allowed", "denied", "not known"]


@dataclass(frozen=True)
class Permission:
    """The answer of AWS to an action; `why` is AWS's code if that is not known."""

    action: str
    verdict: Verdict
    why: str = ""


def try_account(site: Workplace, clusters: Sequence[Cluster]) -> None:
    """Note who asks and what AWS allows; StepFailed if it denies an action of EC2."""
    site.run("doctor", codes=(0,) if site.lab is None else (0, 1))
    site.note(f"{site.who.arn}, account {site.who.account}, {site.target.region}")
    found = permissions(site.target)
    for permission in found:
        why = f" ({permission.why})" if permission.why else ""
        site.note(f"{permission.action}: {permission.verdict}{why}")
    for cluster in clusters:
        site.note(f"quotas for {cluster.nodes} x {cluster.instance_type}: "
                  f"{quota_text(site.target, cluster)}")  # fmt: skip
    denied = [one.action for one in found if one.verdict == "denied"]
    if any(action.startswith("ec2:") for action in denied):
        raise StepFailed(
            f"AWS denies {', '.join(denied)}",
            "allow what docs/getting-started.md lists under Credentials and permissions",
        )


def permissions(target: Target) -> tuple[Permission, ...]:
    """Return the verdict on each action that gpuctl needs; nothing is created."""
    ec2 = client(target, "ec2")
    dry = {**DRY_RUNS, **_zonal(target)}
    tried: list[Permission] = []
    for name, request in dry.items():
        action = f"ec2:{ec2.meta.method_to_api_mapping[name]}"
        tried.append(verdict(action, partial(getattr(ec2, name), DryRun=True, **request)))
    return (*tried, *(verdict(action, ask) for action, ask in _reads(target)))


def _zonal(target: Target) -> dict[str, dict[str, Any]]:
    """Return the requests that need a zone or an image of the region."""
    ec2 = client(target, "ec2")
    with aws_errors():
        zones = ec2.describe_availability_zones()["AvailabilityZones"]
    image = image_id(client(target, "ssm"), BASTION_IMAGE)
    return {
        "run_instances": {
            "ImageId": image, "InstanceType": "t3.small", "MinCount": 1, "MaxCount": 1,
        },
        "create_capacity_reservation": {
            "InstanceType": "t3.small", "InstancePlatform": "Linux/UNIX", "InstanceCount": 1,
            "AvailabilityZone": zones[0]["ZoneName"],
        },
    }  # fmt: skip


def _reads(target: Target) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Yield the actions of other services that only read: they are simply done."""
    quotas, iam = client(target, "service-quotas"), client(target, "iam")
    yield (
        "servicequotas:GetServiceQuota",
        partial(quotas.get_service_quota, ServiceCode="vpc", QuotaCode="L-F678F1CE"),
    )
    yield "servicequotas:ListServiceQuotas", partial(quotas.list_service_quotas, ServiceCode="vpc")
    yield (
        "pricing:GetProducts",
        partial(price, "t3.small", client(target, "pricing"), target.region),
    )
    yield "elasticfilesystem:DescribeFileSystems", client(target, "efs").describe_file_systems
    yield "fsx:DescribeFileSystems", client(target, "fsx").describe_file_systems
    yield "iam:ListRoles", iam.list_roles
    yield "iam:ListInstanceProfiles", iam.list_instance_profiles


def verdict(action: str, ask: Callable[[], Any]) -> Permission:
    """Return whether AWS allows what `ask` requests."""
    try:
        with aws_errors():
            ask()
    except CloudError as error:
        if error.code == "DryRunOperation":
            return Permission(action, "allowed")
        if error.code in DENIED:
            return Permission(action, "denied")
        return Permission(action, "not known", error.code)
    return Permission(action, "allowed")


def quota_text(target: Target, cluster: Cluster) -> str:
    """Return `enough`, or what is too small and the command that asks AWS for more."""
    ask = Clients(client(target, "ec2"), client(target, "service-quotas"))
    checks: tuple[Callable[[], None], ...] = (
        lambda: check_vcpus(cluster, instance_type(ask.ec2, cluster.instance_type), ask),
        lambda: check_elastic_ips(cluster, needed_elastic_ips(cluster), ask),
        lambda: check_vpcs(cluster, ask),
    )
    found = list[str]()
    for check in checks:
        try:
            check()
        except (InputError, CloudError) as error:
            found.append(str(error))
    return "; ".join(found) or "enough"
