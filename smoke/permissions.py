"""Step 1: who asks, which of gpuctl's actions AWS allows, and which quotas are too small.

Dry runs cost nothing and create nothing: EC2 checks the permission, and then refuses
(DryRun of CreateVpc and others in botocore's model of EC2, read 2026-11-23). IAM simulates the
others.
"""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from config.catalogue.iam_actions import ACTION_SCOPES
from config.catalogue.instance_types import BASTION_TYPE
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import CLUSTER_TAG
from config.errors import CloudError, InputError
from config.target import Target
from provision.aws.account import caller
from provision.aws.clients import DENIED, aws_errors, client
from provision.aws.instance_types import availability_zones, instance_type, offers
from provision.aws.machine_images import BASTION_IMAGE, image_id
from provision.billing.prices import price
from provision.permissions.actions import needed
from provision.permissions.check import missing_permissions
from provision.preflight.quotas import Clients, check_elastic_ips, check_vcpus, check_vpcs
from provision.preflight.ssh_access import needed_elastic_ips
from smoke.workplace import StepFailed, Workplace

_NAME = "gpuctl-aws-smoke"

DRY_RUNS: dict[str, dict[str, Any]] = {
    "create_vpc": {"CidrBlock": "10.213.0.0/16"},
    "create_internet_gateway": {},
    "allocate_address": {"Domain": "vpc"},
    "create_placement_group": {"GroupName": _NAME, "Strategy": "cluster"},
    "import_key_pair": {"KeyName": _NAME, "PublicKeyMaterial": b"ssh-ed25519 AAAA dry-run"},
    "create_launch_template": {
        "LaunchTemplateName": _NAME, "LaunchTemplateData": {"InstanceType": "t3.small"},
    },
}  # fmt: skip
"""Requests of EC2 that create something in nothing, by boto3's name. `_zonal` adds those with a
zone. A request that names a resource has to name one that exists: IAM simulates those."""

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
    answers = permissions(site.target)
    for permission in answers:
        why = f" ({permission.why})" if permission.why else ""
        site.note(f"{permission.action}: {permission.verdict}{why}")
    for cluster in clusters:
        site.note(f"quotas for {cluster.nodes} x {cluster.instance_type}: "
                  f"{quota_text(site.target, cluster)}")  # fmt: skip
    denied = [call.action for call in answers if call.verdict == "denied"]
    if any(action.startswith("ec2:") for action in denied):
        raise StepFailed(
            f"AWS denies {', '.join(denied)}",
            "allow what `gpuctl iam-policy` prints",
        )


def permissions(target: Target) -> tuple[Permission, ...]:
    """Return the verdict on each action that gpuctl needs; nothing is created."""
    ec2 = client(target, "ec2")
    dry = {**DRY_RUNS, **_zonal(target)}
    tried: list[Permission] = []
    for name, request in dry.items():
        operation = ec2.meta.method_to_api_mapping[name]
        tagged = {"DryRun": True, "TagSpecifications": _tags(operation), **request}
        tried.append(verdict(f"ec2:{operation}", partial(getattr(ec2, name), **tagged)))
    tried += (verdict(action, ask) for action, ask in _reads(target))
    return (*tried, *_simulated(target, {call.action for call in tried}))


def _tags(operation: str) -> list[dict[str, Any]]:
    """Return the tag that gpuctl's policy requires of everything new."""
    tag = {"Key": CLUSTER_TAG, "Value": _NAME}
    makes = ACTION_SCOPES[f"ec2:{operation}"].makes
    return [{"ResourceType": kind, "Tags": [tag]} for kind in makes]


def _simulated(target: Target, tried: set[str]) -> Iterator[Permission]:
    """Yield what IAM's simulation says about the other actions of the ladder."""
    others = needed(("up", "down", "status"), ("network",)) - tried
    try:
        missing = missing_permissions(target, caller(target), others)
    except CloudError as error:
        yield Permission("iam:SimulatePrincipalPolicy", "not known", error.code)
        return
    warned = {warning.partition(" ")[0] for warning in missing.warnings}
    for action in sorted(others):
        yield Permission(action, "denied" if action in {*missing.required, *warned} else "allowed")


def _zonal(target: Target) -> dict[str, dict[str, Any]]:
    """Return the requests that need a zone or an image of the region."""
    ec2 = client(target, "ec2")
    zones = availability_zones(target.region, offers(ec2, (BASTION_TYPE,))[BASTION_TYPE])
    image = image_id(client(target, "ssm"), BASTION_IMAGE)
    return {
        "run_instances": {
            "ImageId": image, "InstanceType": "t3.small", "MinCount": 1, "MaxCount": 1,
        },
        "create_capacity_reservation": {
            "InstanceType": "t3.small", "InstancePlatform": "Linux/UNIX", "InstanceCount": 1,
            "AvailabilityZone": zones[0],
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
    problems = list[str]()
    for check in checks:
        try:
            check()
        except (InputError, CloudError) as error:
            problems.append(str(error))
    return "; ".join(problems) or "enough"
