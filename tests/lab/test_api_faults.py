"""What the lab can be told to refuse: AWS's code, text and HTTP status, and nothing half done."""

import json
from collections.abc import Callable, Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import boto3
import pytest
from botocore.config import Config

from config.errors import InputError
from lab import fault_kinds, fault_table
from lab.fault_table import OF_MACHINES, PROVIDER
from tests.lab.world import World, refused, world
from tests.labs import KEY

Told = Callable[..., World]


@pytest.fixture
def region(tmp_path: Path) -> Iterator[World]:
    with world(faults=tmp_path / "faults.json") as made:
        yield made


@pytest.fixture
def told(region: World, tmp_path: Path) -> Told:
    """`told("capacity", "3")`: the region with that fault, and the bare text of none."""

    def tell(name: str, *arguments: str) -> World:
        fault_table.write(tmp_path / "faults.json", {name: fault_kinds.parse(name, arguments)})
        return region

    return tell


def insufficient(zone: str) -> str:
    return (
        "We currently do not have sufficient p4d.24xlarge capacity in the Availability Zone you"
        f" requested ({zone}). Our system will be working on provisioning additional capacity."
    )


def instances(region: World) -> int:
    return len(region.ec2.describe_instances()["Reservations"])


def test_no_capacity_in_named_zones(told: Told) -> None:
    region = told("no-capacity", "us-east-1a", "us-east-1b")
    with refused("InsufficientInstanceCapacity", insufficient("us-east-1a"), 500):
        region.run()
    assert instances(region) == 0
    region.run(InstanceType="t3.small", SubnetId=region.subnet, ImageId=region.image)
    there = region.new_subnet("10.213.16.0/20", "us-east-1c")
    region.run(ImageId=region.image, InstanceType="p4d.24xlarge", SubnetId=there)


def test_capacity_for_three_of_four(told: Told) -> None:
    region = told("capacity", "3")
    with refused("InsufficientInstanceCapacity", insufficient("us-east-1a"), 500):
        region.run(4)
    assert instances(region) == 0
    assert len(region.run(3)) == 3


def test_a_quota_of_192_vcpus(told: Told) -> None:
    region = told("vcpu-quota", "192")
    text = (
        "You have requested more vCPU capacity than your current vCPU limit of 192 allows for the"
        " instance bucket that the specified instance type belongs to. Please visit"
        " http://aws.amazon.com/contact-us/ec2-request to request an adjustment to this limit."
    )
    with refused("VcpuLimitExceeded", text):
        region.run(3)
    region.run(2)
    with refused("VcpuLimitExceeded", text):
        region.run(1)
    with refused("VcpuLimitExceeded", text):
        region.ec2.create_capacity_reservation(
            InstanceType="p4d.24xlarge", InstancePlatform="Linux/UNIX", InstanceCount=1,
            AvailabilityZone="us-east-1a",
        )  # fmt: skip
    # Spot and other families have quotas of their own.
    spot = {"MarketType": "spot"}
    region.run(2, InstanceMarketOptions=spot)
    with refused("MaxSpotInstanceCountExceeded", "Max spot instance count exceeded"):
        region.run(1, InstanceMarketOptions=spot)
    region.run(InstanceType="t3.small", SubnetId=region.subnet, ImageId=region.image)


def test_every_third_call_is_throttled_and_clients_go_on(told: Told) -> None:
    region = told("throttle", "3")
    region.ec2.describe_vpcs()
    region.ec2.describe_vpcs()
    with refused("RequestLimitExceeded", "Request limit exceeded.", 503):
        region.ec2.describe_vpcs()
    patient = boto3.client(
        "ec2", endpoint_url=region.url, region_name="us-east-1", aws_access_key_id=KEY.key_id,
        aws_secret_access_key=KEY.secret, config=Config(retries={"mode": "standard"}),
    )  # fmt: skip
    for _ in range(4):
        patient.describe_vpcs()


def test_an_api_error_at_the_kth_call_comes_once(told: Told) -> None:
    region = told("api-error", "2", "Unavailable")
    region.ec2.describe_vpcs()
    with refused("Unavailable", "AWS cannot serve the request now.", 500):
        region.ec2.describe_vpcs()
    for _ in range(3):
        region.ec2.describe_vpcs()
    told("api-error", "1")
    with refused("InternalError", "An internal error has occurred", 500):
        region.ec2.describe_vpcs()


def test_a_type_that_a_zone_does_not_offer(told: Told) -> None:
    region = told("not-offered", "p4d.24xlarge", "us-east-1a", "us-east-1b")
    offers = region.ec2.describe_instance_type_offerings(
        LocationType="availability-zone",
        Filters=[{"Name": "instance-type", "Values": ["p4d.24xlarge"]}],
    )["InstanceTypeOfferings"]
    assert sorted(offer["Location"] for offer in offers) == ["us-east-1c", "us-east-1d"]
    text = (
        "Your requested instance type (p4d.24xlarge) is not supported in your requested"
        " Availability Zone (us-east-1a). Please retry your request by not specifying an"
        " Availability Zone or choosing us-east-1c, us-east-1d."
    )
    with refused("Unsupported", text):
        region.run()


def test_local_and_wavelength_zones_offer_types_after_the_opt_in(told: Told) -> None:
    local = ("us-east-1-atl-2a", "us-east-1-wl1-bos-wlz-1", "us-west-2-lax-1a")
    region = told("local-zones", *local)
    filters = [{"Name": "instance-type", "Values": ["p4d.24xlarge"]}]
    offers = region.ec2.describe_instance_type_offerings(
        LocationType="availability-zone", Filters=filters
    )["InstanceTypeOfferings"]
    usual = [f"us-east-1{letter}" for letter in "abcd"]
    assert sorted(offer["Location"] for offer in offers) == [*local[:2], *usual]
    (offer,) = region.ec2.describe_instance_type_offerings(Filters=filters)["InstanceTypeOfferings"]
    assert offer["Location"] == "us-east-1"


def test_no_free_address(told: Told) -> None:
    region = told("no-free-address")
    text = (
        f"There are not enough free addresses in subnet '{region.subnet}' to satisfy the requested"
        " number of instances."
    )
    with refused("InsufficientFreeAddressesInSubnet", text):
        region.run()
    assert instances(region) == 0


def test_limits_of_addresses_and_vpcs(told: Told) -> None:
    region = told("elastic-ip-limit", "1")
    region.ec2.allocate_address(Domain="vpc")
    with refused("AddressLimitExceeded", "The maximum number of addresses has been reached."):
        region.ec2.allocate_address(Domain="vpc")
    told("vpc-limit", "1")
    with refused("VpcLimitExceeded", "The maximum number of VPCs has been reached."):
        region.ec2.create_vpc(CidrBlock="10.1.0.0/16")


def test_a_limit_of_vpcs_lets_a_region_begin(told: Told) -> None:
    elsewhere = told("vpc-limit", "0").client("ec2", "us-west-2")
    assert elsewhere.describe_vpcs()["Vpcs"] == []
    with refused("VpcLimitExceeded", "The maximum number of VPCs has been reached."):
        elsewhere.create_vpc(CidrBlock="10.1.0.0/16")


def test_images_of_another_architecture(told: Told) -> None:
    region = told("image-architecture", "arm64")
    (image,) = region.ec2.describe_images(ImageIds=[region.image])["Images"]
    assert image["Architecture"] == "arm64"
    with pytest.raises(Exception, match=r"InvalidParameterValue.*does not match the architecture"):
        region.run()
    assert instances(region) == 0


def test_quotas_as_service_quotas_tells_them(told: Told) -> None:
    region = told("vcpu-quota", "192")
    quotas: Any = region.client("service-quotas")
    quota = quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-417A185B")["Quota"]
    assert (quota["QuotaName"], quota["Value"]) == ("Running On-Demand P instances", 192.0)
    listed = quotas.list_service_quotas(ServiceCode="ec2")["Quotas"]
    assert {q["QuotaCode"] for q in listed} > {"L-1216C47A", "L-DB2E81BA", "L-0263D0A3"}
    with refused("NoSuchResourceException", "The specified quota does not exist."):
        quotas.get_service_quota(ServiceCode="ec2", QuotaCode="L-00000000")


def test_prices_in_the_shape_of_the_price_list(region: World) -> None:
    filters = {
        "instanceType": "p4d.24xlarge", "regionCode": "eu-west-1", "operatingSystem": "Linux",
        "tenancy": "Shared", "preInstalledSw": "NA", "capacitystatus": "Used",
    }  # fmt: skip
    asked = [{"Type": "TERM_MATCH", "Field": k, "Value": v} for k, v in filters.items()]
    (text,) = region.client("pricing").get_products(ServiceCode="AmazonEC2", Filters=asked)[
        "PriceList"
    ]
    (term,) = json.loads(text)["terms"]["OnDemand"].values()
    (dimension,) = term["priceDimensions"].values()
    assert (dimension["unit"], dimension["pricePerUnit"]) == ("Hrs", {"USD": "21.9576420000"})


WITHOUT_CODE = {
    "claim-failed",
    "claim-pending",
    "consistency",
    "console-late",
    "fsx-creating",
    "local-zones",
    "lustre-client",
    "nat-pending",
    "vpc-endpoint",
    PROVIDER,
} | OF_MACHINES
"""The faults that no error of the API shows."""


@pytest.mark.parametrize("name", sorted({*fault_kinds.FAULTS} - WITHOUT_CODE))
def test_every_fault_has_a_code_in_the_table_of_errors(name: str) -> None:
    from config.catalogue.aws_codes import aws_code

    assert aws_code(fault_kinds.FAULTS[name].code) is not None


def test_a_fault_that_is_none_says_what_there_is() -> None:
    with pytest.raises(InputError, match=r"^the lab has no fault 'tea'; it knows no-capacity, "):
        fault_kinds.parse("tea", ())
    with pytest.raises(InputError) as caught:
        fault_kinds.parse("capacity", ("three",))
    assert str(caught.value) == (
        "fault capacity cannot be given 'three'; write `gpuctl lab fault set capacity N`: every"
        " zone has N instances of a type, and no more"
    )
    with pytest.raises(InputError, match="no-capacity ZONE…"):
        fault_kinds.parse("no-capacity", ("us-east-1",))


KINDS = {
    "reservation": {
        "wrong-zone": ("p4d.24xlarge", "us-east-1b", 2, "active"),
        "wrong-type": ("p4de.24xlarge", "us-east-1a", 2, "active"),
        "too-small": ("p4d.24xlarge", "us-east-1a", 1, "active"),
        "taken": ("p4d.24xlarge", "us-east-1a", 2, "active"),
    },
    "block": {
        "not-started": ("p4d.24xlarge", "us-east-1a", 2, "scheduled"),
        "last-half-hour": ("p4d.24xlarge", "us-east-1a", 2, "active"),
    },
}


@pytest.mark.parametrize(("name", "kind"), [(n, k) for n, kinds in KINDS.items() for k in kinds])
def test_a_reservation_that_does_not_serve_is_there_while_the_fault_is(
    told: Told, tmp_path: Path, name: str, kind: str
) -> None:
    region = told(name, kind, "p4d.24xlarge", "2", "us-east-1a")
    (shown,) = region.ec2.describe_capacity_reservations()["CapacityReservations"]
    assert (
        shown["InstanceType"],
        shown["AvailabilityZone"],
        shown["AvailableInstanceCount"],
        shown["State"],
    ) == KINDS[name][kind]
    assert shown["ReservationType"] == {"block": "capacity-block"}.get(name, "default")
    target = {"CapacityReservationId": shown["CapacityReservationId"]}
    market = {"InstanceMarketOptions": {"MarketType": "capacity-block"}} if name == "block" else {}
    exceeded = (
        "The requested reservation does not have sufficient compatible and available capacity for"
        " this request."
    )
    with refused("ReservationCapacityExceeded", exceeded):
        region.run(
            2, CapacityReservationSpecification={"CapacityReservationTarget": target}, **market
        )
    assert instances(region) == 0
    elsewhere: Any = region.client("ec2", "eu-west-1")
    assert elsewhere.describe_capacity_reservations()["CapacityReservations"] == []
    fault_table.write(tmp_path / "faults.json", {})
    assert region.ec2.describe_capacity_reservations()["CapacityReservations"] == []


def test_a_block_that_has_not_started_does_in_an_hour_and_the_other_ends_soon(told: Told) -> None:
    now = datetime.now(UTC)
    region = told("block", "not-started", "p4d.24xlarge", "2", "us-east-1a")
    (shown,) = region.ec2.describe_capacity_reservations()["CapacityReservations"]
    assert timedelta(minutes=59) < shown["StartDate"] - now < timedelta(minutes=62)
    region = told("block", "last-half-hour", "p4d.24xlarge", "2", "us-east-1a")
    (shown,) = region.ec2.describe_capacity_reservations()["CapacityReservations"]
    assert timedelta(minutes=29) < shown["EndDate"] - now < timedelta(minutes=32)
