"""What the account allows and the cluster may cost, told before anything is made."""

import json
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.exceptions import EndpointConnectionError

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Image, Resolved
from config.errors import CloudError, GpuctlError, InputError
from config.target import Target
from lab import fault_kinds, fault_table
from lab.api.quotas import QUOTAS
from provision.aws.instance_types import read_instance_type
from provision.aws.resources import Resource
from provision.billing.cost import price_of
from provision.preflight import preflight, quotas
from provision.preflight.preflight import resolve
from provision.preflight.problems import Problems
from provision.preflight.quotas import AppliedQuota
from provision.state.store import ClusterStore
from tests.aws_calls import Answer, ApiCall
from tests.infra.region import CREDENTIALS, child
from tests.labs import KEY

pytestmark = pytest.mark.slow

Tell = Callable[..., None]


@pytest.fixture(scope="module")
def region(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Target, Path]]:
    """A region and the file of its faults."""
    state = tmp_path_factory.mktemp("region")
    table = state / "faults.json"
    with child("lab.api", "--faults", str(table)) as (url, _):
        yield (
            Target(
                name="test",
                region="us-east-1",
                state=state / "gpuctl",
                endpoint=url,
                environment=CREDENTIALS,
                caller_address="198.18.255.1",
            ),
            table,
        )


@pytest.fixture
def target(region: tuple[Target, Path], tmp_path: Path) -> Iterator[Target]:
    """The region without faults, and without instances afterwards."""
    target, table = region
    yield replace(target, state=tmp_path)
    table.unlink(missing_ok=True)


@pytest.fixture
def tell(region: tuple[Target, Path]) -> Tell:
    """`tell("capacity", "3")`: the region has that fault, and no other."""

    def set_fault(name: str, *arguments: str) -> None:
        fault_table.write(region[1], {name: fault_kinds.parse(name, arguments)})

    return set_fault


def cluster(**changes: Any) -> Cluster:
    data = {"name": "demo", "nodes": 2, "instance_type": "p5.48xlarge", **changes}
    return Cluster.model_validate_json(json.dumps(data))


def complaint(target: Target, **changes: Any) -> GpuctlError:
    with pytest.raises(GpuctlError) as caught:
        resolve(cluster(**changes), ClusterStore(target))
    assert not target.clusters.exists()
    return caught.value


def ec2(target: Target) -> Any:
    return boto3.client(
        "ec2", endpoint_url=target.endpoint, region_name=target.region,
        aws_access_key_id=KEY.key_id, aws_secret_access_key=KEY.secret,
    )  # fmt: skip


@pytest.fixture
def a_p4d_of_somebody(target: Target) -> Iterator[None]:
    api = ec2(target)
    vpc = api.create_vpc(CidrBlock="10.9.0.0/16")["Vpc"]["VpcId"]
    subnet = api.create_subnet(
        VpcId=vpc, CidrBlock="10.9.0.0/24", AvailabilityZone="us-east-1a"
    )["Subnet"]["SubnetId"]  # fmt: skip
    image = api.describe_images()["Images"][0]["ImageId"]
    (made,) = api.run_instances(
        ImageId=image, InstanceType="p4d.24xlarge", SubnetId=subnet, MinCount=1, MaxCount=1
    )["Instances"]
    yield
    api.terminate_instances(InstanceIds=[made["InstanceId"]])
    api.delete_subnet(SubnetId=subnet)
    api.delete_vpc(VpcId=vpc)


@pytest.mark.usefixtures("a_p4d_of_somebody")
def test_the_vcpu_quota_is_reckoned(target: Target, tell: Tell) -> None:
    tell("vcpu-quota", "192")
    error = complaint(target)
    assert isinstance(error, InputError)
    assert str(error) == (
        'vCPUs: 2 x p5.48xlarge needs 384, the quota "Running On-Demand P instances" (L-417A185B)'
        " is 192 in us-east-1 of which 96 in use; ask for 480 or more: `aws service-quotas"
        " request-service-quota-increase --service-code ec2 --quota-code L-417A185B"
        " --desired-value 480 --region us-east-1`"
    )


def test_the_limits_of_addresses_vpcs_and_vcpus_come_at_once(
    region: tuple[Target, Path], target: Target
) -> None:
    limits = {name: ("0",) for name in ("vcpu-quota", "elastic-ip-limit", "vpc-limit")}
    fault_table.write(region[1], limits)
    lines = str(complaint(target, budget={"max_hourly": 100})).splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "vCPUs",
        "Elastic IP addresses",
        "VPCs",
        "budget.max_hourly",
    ]
    assert lines[1:3] == [
        f'{what}: 1 more needed, the quota "{quota}" ({code}) is 0 in us-east-1 of which 0 in use;'
        " remove unused ones, or ask for 1 or more: `aws service-quotas"
        f" request-service-quota-increase --service-code {service} --quota-code {code}"
        " --desired-value 1 --region us-east-1`"
        for what, quota, service, code in (
            ("Elastic IP addresses", "EC2-VPC Elastic IPs", "ec2", "L-0263D0A3"),
            ("VPCs", "VPCs per Region", "vpc", "L-F678F1CE"),
        )
    ]
    assert lines[3] == (
        "budget.max_hourly: an hour costs $110.16, at most $100.00 is allowed; ask for fewer nodes"
        " or another type, or allow more: budget.max_hourly"
    )


def test_spot_and_families_that_are_not_in_the_catalogue_have_their_quotas(
    target: Target, tell: Tell
) -> None:
    tell("vcpu-quota", "0")
    assert "All P5 Spot Instance Requests" in str(complaint(target, capacity={"type": "spot"}))
    text = str(complaint(target, instance_type="c6i.large"))
    # Two nodes of two vCPUs, and the bastion's two.
    assert 'needs 6, the quota "Running On-Demand Standard (A, C, D, H, I, M, R, T, Z)' in text
    assert "(L-1216C47A)" in text
    text = str(complaint(target, instance_type="c6i.large", capacity={"type": "spot"}))
    assert 'needs 4, the quota "All Standard (A, C, D, H, I, M, R, T, Z) Spot Instance Req' in text


def test_a_total_budget_is_for_the_lifetime(target: Target) -> None:
    error = complaint(target, lifetime={"max": "8h"}, budget={"max_total": 800})
    assert (
        error.message == "budget.max_total: lifetime.max costs $881.25, at most $800.00 is allowed"
    )
    assert error.hint == (
        "ask for fewer nodes or another type, a shorter lifetime, or allow more: budget.max_total"
    )
    assert resolve(cluster(lifetime={"max": "8h"}, budget={"max_total": 900}), ClusterStore(target))


def test_a_budget_cannot_be_kept_without_a_price(target: Target) -> None:
    error = complaint(target, instance_type="m5.large", budget={"max_hourly": 10})
    assert error.message == "budget: the price of m5.large is not known"
    assert (
        resolve(cluster(instance_type="m5.large"), ClusterStore(target)).instance_type.price_usd_h
        is None
    )


def test_any_type_of_ec2_will_do(target: Target) -> None:
    found = resolve(cluster(name="cpu", instance_type="c6i.large"), ClusterStore(target))
    assert (found.instance_type.gpus, found.instance_type.max_efa) == (0, 0)
    assert [i.type for i in found.interfaces] == ["interface"]
    assert found.instance_type.price_usd_h == 0.085
    assert found.price_source == "AWS's price list of 2026-07-28, us-east-1"
    assert found.warnings == ()


def test_a_name_that_the_region_has_not_gets_the_nearest_that_it_has(target: Target) -> None:
    assert str(complaint(target, instance_type="c6i.7xlarge")).startswith(
        "instance type c6i.7xlarge does not exist in us-east-1; did you mean c6i."
    )


def test_types_are_counted_under_aws_s_own_names() -> None:
    counted = {
        kind: [
            quota.code
            for quota in QUOTAS
            if AppliedQuota(quota.service, quota.code, quota.name, 0).counts(kind)
        ]
        for kind in ("p5.48xlarge", "p4d.24xlarge", "g6e.8xlarge", "gr6.8xlarge", "t3.small",
                     "trn1.32xlarge", "inf2.xlarge", "hpc7a.96xlarge", "im4gn.large",
                     "is4gen.large", "x2gd.large")
    }  # fmt: skip
    assert counted == {
        "p5.48xlarge": ["L-417A185B", "L-C4BD4855"],
        "p4d.24xlarge": ["L-417A185B", "L-7212CCBC"],
        "g6e.8xlarge": ["L-DB2E81BA", "L-3819A6DF"],
        "gr6.8xlarge": ["L-DB2E81BA", "L-3819A6DF"],
        "t3.small": ["L-1216C47A", "L-34B43A08"],
        "trn1.32xlarge": ["L-2C3B7624", "L-6B0D517C"],
        "inf2.xlarge": ["L-1945791B", "L-B5D1601B"],
        "hpc7a.96xlarge": ["L-F7808C92"],
        "im4gn.large": ["L-1216C47A", "L-34B43A08"],
        "is4gen.large": ["L-1216C47A", "L-34B43A08"],
        "x2gd.large": ["L-7295265B"],
    }


@pytest.mark.parametrize(
    ("lifecycle", "on_demand", "spot"),
    [(None, True, False), ("spot", False, True), ("capacity-block", False, False)],
)
def test_each_quota_counts_its_own_way_of_buying(
    lifecycle: str | None, on_demand: bool, spot: bool
) -> None:
    instance: Any = {"InstanceType": "p5.48xlarge"}
    if lifecycle:
        instance["InstanceLifecycle"] = lifecycle
    quota = AppliedQuota("ec2", "L-417A185B", "Running On-Demand P instances", 192)
    counted = [quotas._is_counted(instance, quota, way) for way in (False, True)]
    assert counted == [on_demand, spot]
    of_others: Any = {**instance, "InstanceType": "g5.xlarge"}
    assert not any(quotas._is_counted(of_others, quota, way) for way in (False, True))


def test_a_question_that_may_not_be_asked_is_a_warning() -> None:
    def denied() -> None:
        raise CloudError(
            "AWS refused GetProducts: AccessDeniedException: No", "", "AccessDeniedException"
        )

    complaints = Problems()
    complaints.advise("the price", "pricing:GetProducts", denied)
    complaints.check()
    assert complaints.warnings == [
        "the price could not be checked (AccessDeniedException: allow pricing:GetProducts)"
    ]


def test_without_service_quotas_and_pricing_the_catalogue_serves(
    target: Target, answer_calls: Callable[[Answer], None]
) -> None:
    def lose(call: ApiCall) -> Any:
        if call.operation in ("GetServiceQuota", "ListServiceQuotas", "GetProducts"):
            raise EndpointConnectionError(endpoint_url="https://pricing.us-east-1.amazonaws.com")
        return call.ask()

    answer_calls(lose)
    found = resolve(cluster(name="dark"), ClusterStore(target))
    assert (found.instance_type.price_usd_h, found.price_source) == (
        55.04,
        "gpuctl's list of 2026-07-28, us-east-1",
    )
    assert [warning.partition(" could")[0] for warning in found.warnings] == [
        "the vCPU quota",
        "the quota of Elastic IP addresses",
        "the quota of VPCs",
        "the price",
    ]


def test_throttling_on_every_third_call_is_outwaited(target: Target, tell: Tell) -> None:
    tell("throttle", "3")
    assert isinstance(resolve(cluster(name="slow"), ClusterStore(target)), Resolved)


def test_images_of_the_wrong_architecture(target: Target, tell: Tell) -> None:
    tell("image-architecture", "arm64")
    assert str(complaint(target, name="arm")) == (
        "image dlami-ubuntu-24.04 is for arm64, p5.48xlarge is x86_64"
        " (InvalidParameterValue); name an image of that architecture (ami-…)"
    )


def test_a_zone_that_does_not_offer_the_type(target: Target, tell: Tell) -> None:
    tell("not-offered", "p5.48xlarge", "us-east-1a")
    error = complaint(target, capacity={"zones": ["us-east-1a"]})
    assert error.message == "capacity.zones: us-east-1a: none offers p5.48xlarge (Unsupported)"


def test_local_zones_are_used_only_if_the_file_names_them(target: Target, tell: Tell) -> None:
    tell("local-zones", "us-east-1-atl-2a", "us-east-1-wl1-bos-wlz-1")
    usual = [f"us-east-1{letter}" for letter in "abcdf"]  # the bastion's too
    assert list(resolve(cluster(), ClusterStore(target)).zones) == usual
    named = {"zones": ["us-east-1-atl-2a", "us-east-1b"]}
    assert list(resolve(cluster(capacity=named), ClusterStore(target)).zones) == named["zones"]


def test_a_type_that_only_a_local_zone_offers_needs_the_zones_name(
    target: Target, tell: Tell, region: tuple[Target, Path]
) -> None:
    faults: dict[str, tuple[str, ...]] = {"local-zones": ("us-east-1-atl-2a",)}
    faults["not-offered"] = ("p5.48xlarge", *(f"us-east-1{letter}" for letter in "abcdef"))
    fault_table.write(region[1], faults)
    assert str(complaint(target)) == (
        "no availability zone of us-east-1 offers p5.48xlarge; choose another region, or name a"
        " zone in capacity.zones: us-east-1-atl-2a"
    )


def test_an_image_that_boots_by_uefi_alone_is_refused_for_a_type_that_cannot() -> None:
    p4d = read_instance_type(
        {"InstanceType": "p4d.24xlarge", "SupportedBootModes": ["legacy-bios"]}
    )
    image = Image(
        id="ami-1", name="i", root_device="/dev/sda1", architecture="x86_64", boot_mode="uefi",
    )  # fmt: skip
    wanted = cluster(instance_type="p4d.24xlarge")
    with pytest.raises(InputError) as caught:
        preflight._check_image(wanted, p4d, image, 8)
    assert caught.value.message == (
        "image dlami-ubuntu-24.04 boots by uefi only, p4d.24xlarge by legacy-bios"
    )
    preflight._check_image(wanted, p4d, image.model_copy(update={"boot_mode": "uefi-preferred"}), 8)


def test_an_image_with_the_open_driver_is_refused_for_older_gpus() -> None:
    p3 = read_instance_type({"InstanceType": "p3.16xlarge"})
    name = "Deep Learning Base OSS Nvidia Driver GPU AMI (Ubuntu 24.04) 20261009"
    image = Image(id="ami-1", name=name, root_device="/dev/sda1", architecture="x86_64")
    wanted = cluster(instance_type="p3.16xlarge", image="ami-0123456789abcdef0")
    with pytest.raises(InputError) as caught:
        preflight._check_image(wanted, p3, image, 8)
    assert str(caught.value) == (
        f"image ami-0123456789abcdef0 ({name}) has NVIDIA's open driver, and no driver for the V100"
        " of p3.16xlarge; name an image with NVIDIA's proprietary driver, of branch 580 or older,"
        " or choose a newer type such as p4d.24xlarge"
    )
    preflight._check_image(wanted, p3, image.model_copy(update={"name": "mine"}), 8)


def test_what_runs_costs_what_its_plan_said(target: Target) -> None:
    planned = resolve(cluster(name="cpu", instance_type="c6i.large"), ClusterStore(target))
    node = Resource("instance", "i-1", "cpu", "cpu-node0", "running", {"InstanceType": "c6i.large"})
    assert (price_of(node), price_of(node, planned)) == (None, 0.085)


def test_a_reservation_where_no_bastion_can_be(target: Target, region: tuple[Target, Path]) -> None:
    reservation = fault_kinds.parse("reservation", ("taken", "p5.48xlarge", "2", "us-east-1a"))
    no_bastion = fault_kinds.parse("not-offered", ("t3.small", "us-east-1a"))
    fault_table.write(region[1], {"reservation": reservation, "not-offered": no_bastion})
    (capacity,) = ec2(target).describe_capacity_reservations()["CapacityReservations"]
    held = capacity["CapacityReservationId"]
    there = {"type": "reservation", "id": held}
    assert str(complaint(target, capacity=there)) == (
        f"capacity.id: {held} is in us-east-1a, which does not offer the bastion's t3.small"
        " (Unsupported); set network.access to elastic-ip or private"
    )
    assert resolve(
        cluster(capacity=there, network={"access": "private"}), ClusterStore(target)
    ).zone == ("us-east-1a")
