"""What the lab is told to refuse: one clear line with AWS's code and a remedy, and nothing runs.

That throttling is outwaited, `test_network.py` shows.
"""

import re
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file
from tests.e2e.region import what_bills

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

Tell = Callable[..., str]


@pytest.fixture
def tell(gpuctl: Gpuctl) -> Iterator[Tell]:
    """`tell("capacity", "3")`: the lab has that fault until the test ends; what it said."""

    def set_fault(*fault: str) -> str:
        return gpuctl("lab", "fault", "set", *fault)

    yield set_fault
    gpuctl("lab", "fault", "clear")


def quota(of: str, code: str, needed: str, limit: int, wanted: int) -> str:
    """The line about a quota that is too small."""
    service = "vpc" if of.startswith("VPCs") else "ec2"
    more = "" if needed.startswith("vCPUs") else "remove unused ones, or "
    return (
        f'{needed}, the quota "{of}" ({code}) is {limit} in us-east-1 of which 0 in use; {more}ask'
        f" for {wanted} or more: `aws service-quotas request-service-quota-increase --service-code"
        f" {service} --quota-code {code} --desired-value {wanted} --region us-east-1`"
    )


REFUSED_BEFORE_ANYTHING = {
    ("vcpu-quota", "192"): quota(
        "Running On-Demand P instances", "L-417A185B", "vCPUs: 4 x p4d.24xlarge needs 384", 192, 384
    ),
    ("elastic-ip-limit", "0"): quota(
        "EC2-VPC Elastic IPs", "L-0263D0A3", "Elastic IP addresses: 1 more needed", 0, 1
    ),
    ("vpc-limit", "0"): quota("VPCs per Region", "L-F678F1CE", "VPCs: 1 more needed", 0, 1),
    ("not-offered", "p4d.24xlarge", "us-east-1a"): "capacity.zones: us-east-1a: none offers"
    " p4d.24xlarge (Unsupported); these do: us-east-1b, us-east-1c, us-east-1d",
    ("image-architecture", "arm64"): "image dlami-ubuntu-24.04 is for arm64, p4d.24xlarge is x86_64"
    " (InvalidParameterValue); name an image of that architecture (ami-…)",
}


def test_all_is_told_before_anything_is_made(gpuctl: Gpuctl, tell: Tell, tmp_path: Path) -> None:
    for fault in REFUSED_BEFORE_ANYTHING:
        tell(*fault)
    file = cluster_file(tmp_path, "refused", nodes=4, capacity={"zones": ["us-east-1a"]})
    output = gpuctl("--lab", "up", str(file), "--yes", code=2)
    _, _, told = output.partition("gpuctl: error: ")
    assert told.splitlines() == list(REFUSED_BEFORE_ANYTHING.values())
    assert what_bills(gpuctl, "refused") == {}


CODE = r" \(ReservationCapacityExceeded\); "
MINUTE = r"\d{4}-\d\d-\d\d \d\d:\d\d UTC"
NO_SERVICE = {
    "reservation wrong-type": r"is for p4de\.24xlarge, the file asks for p4d\.24xlarge"
    + CODE
    + "change instance_type, or name another reservation",
    "reservation too-small": "has 1 of 1 places free, 2 are needed"
    + CODE
    + "ask for fewer nodes, or terminate instances that run in it",
    "block not-started": rf"begins at {MINUTE}, in \d\d minutes"
    + CODE
    + r"set capacity\.wait to \d\dm or more, or come back then",
    "block last-half-hour": rf"ends at {MINUTE}: in a block's last half hour AWS ends its instances"
    " and starts none"
    + CODE
    + r"name another: `gpuctl (--lab|--lab-name \S+) capacity TYPE` lists yours",
}
"""By fault: what the line says after the reservation's id, as a regular expression."""


@pytest.mark.parametrize("fault", NO_SERVICE)
def test_a_reservation_that_does_not_serve_is_told_before_anything_is_made(
    gpuctl: Gpuctl, tell: Tell, tmp_path: Path, fault: str
) -> None:
    file, reservation = reserved_file(tell, tmp_path, *fault.split())
    (line,) = errors(gpuctl("--lab", "up", str(file), "--yes", code=2))
    told = rf"gpuctl: error: capacity\.id: {reservation} {NO_SERVICE[fault]}"
    assert re.fullmatch(told, line), line
    assert what_bills(gpuctl, "refused") == {}


def test_a_reservation_taken_by_others_is_told_at_the_launch_and_nothing_stays(
    gpuctl: Gpuctl, tell: Tell, tmp_path: Path
) -> None:
    file, reservation = reserved_file(tell, tmp_path, "reservation", "taken")
    assert reservation in gpuctl("--lab", "capacity", "p4d.24xlarge")
    output = gpuctl("--lab", "up", str(file), "--yes", code=1)
    (line,) = errors(output)
    assert "ReservationCapacityExceeded: The requested reservation does not have sufficient" in line
    assert "wait until the reservation's slots are free, or ask for fewer nodes" in output
    assert what_bills(gpuctl, "refused") == {}
    gpuctl("lab", "fault", "clear", "reservation")
    assert reservation not in gpuctl("--lab", "capacity", "p4d.24xlarge")


def reserved_file(tell: Tell, folder: Path, *fault: str) -> tuple[Path, str]:
    """A cluster file for the reservation that the fault makes, and its id."""
    told = tell(*fault, "p4d.24xlarge", "2", "us-east-1a")
    kind = {"block": "capacity-block"}.get(fault[0], fault[0])
    shown = re.fullmatch(rf"capacity: {{type: {kind}, id: (cr-[0-9a-f]{{17}})}}\n", told)
    assert shown, told
    capacity = {"type": kind, "id": shown[1]}
    return cluster_file(folder, "refused", capacity=capacity), shown[1]


def errors(output: str) -> list[str]:
    return [line for line in output.splitlines() if line.startswith("gpuctl: error:")]


NOWHERE = (
    r"no zone has 2 x p4d\.24xlarge whole, so nothing was launched"
    r" \((us-east-1.: InsufficientInstanceCapacity(, )?)+\); name other zones in capacity\.zones,.*"
)
REFUSED_AT_LAUNCH = {
    ("no-free-address",): r"\S+ \(aws:ec2/instance:Instance\) failed: .*"
    r"InsufficientFreeAddressesInSubnet: There are not enough free addresses in subnet .*; use a"
    r" larger network\.cidr, or a subnet with free addresses",
    ("capacity", "1"): NOWHERE,
    ("no-capacity", *(f"us-east-1{zone}" for zone in "abcdef")): NOWHERE,
    # Behind all that preflight asks; and of a kind that no question takes for an answer, as those
    # do that say "may not be checked" of what these credentials may not ask.
    ("api-error", "45", "OptInRequired"): ".*OptInRequired: .*; enable the region, or subscribe to"
    " the image, in the AWS console.*",
}
"""By fault: the line, as a regular expression."""


@pytest.mark.parametrize("fault", REFUSED_AT_LAUNCH, ids=lambda fault: str(fault[0]))
def test_told_at_the_launch_and_nothing_stays(
    gpuctl: Gpuctl, tell: Tell, tmp_path: Path, fault: tuple[str, ...]
) -> None:
    tell(*fault)
    file = cluster_file(tmp_path, "refused")
    (line,) = errors(gpuctl("--lab", "up", str(file), "--yes", code=1))
    assert re.fullmatch(f"gpuctl: error: {REFUSED_AT_LAUNCH[fault]}", line), line
    assert what_bills(gpuctl, "refused") == {}
