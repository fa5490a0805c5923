"""What the lab is told to refuse: one clear line with AWS's code and a remedy, and nothing runs."""

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file
from tests.e2e.region import what_bills

pytestmark = pytest.mark.lab

Tell = Callable[..., None]


@pytest.fixture
def tell(gpuctl: Gpuctl) -> Iterator[Tell]:
    """`tell("capacity", "3")`: the lab has that fault until the test ends."""

    def set_fault(*fault: str) -> None:
        gpuctl("lab", "fault", "set", *fault)

    yield set_fault
    gpuctl("lab", "fault", "clear")


REFUSED_BEFORE_ANYTHING = {
    ("vcpu-quota", "96"): "vCPUs: 2 x p4d.24xlarge needs 192, the quota",
    ("elastic-ip-limit", "0"): 'the quota "EC2-VPC Elastic IPs" (L-0263D0A3) is 0 in us-east-1',
    ("vpc-limit", "0"): 'the quota "VPCs per Region" (L-F678F1CE) is 0 in us-east-1',
    ("image-architecture", "arm64"): "image dlami-ubuntu-24.04 is for arm64, p4d.24xlarge is x86",
    ("not-offered", "p4d.24xlarge", "us-east-1a"): "capacity.zones: us-east-1a: none offers p4d",
}


@pytest.mark.parametrize("fault", REFUSED_BEFORE_ANYTHING, ids=lambda fault: str(fault[0]))
def test_told_before_anything_is_made(
    gpuctl: Gpuctl, tell: Tell, tmp_path: Path, fault: tuple[str, ...]
) -> None:
    tell(*fault)
    file = cluster_file(tmp_path, "refused", capacity={"zones": ["us-east-1a"]})
    output = gpuctl("--lab", "up", str(file), "--yes", code=2)
    (line,) = [line for line in output.splitlines() if line.startswith("gpuctl: error:")]
    assert REFUSED_BEFORE_ANYTHING[fault] in line
    assert what_bills(gpuctl, "refused") == {}


REFUSED_AT_LAUNCH = {
    ("no-free-address",): "InsufficientFreeAddressesInSubnet",
    ("capacity", "1"): "InsufficientInstanceCapacity",
    ("api-error", "12", "UnauthorizedOperation"): "UnauthorizedOperation",
}


@pytest.mark.parametrize("fault", REFUSED_AT_LAUNCH, ids=lambda fault: str(fault[0]))
def test_told_at_the_launch_and_no_node_runs(
    gpuctl: Gpuctl, tell: Tell, tmp_path: Path, fault: tuple[str, ...]
) -> None:
    tell(*fault)
    file = cluster_file(tmp_path, "refused")
    output = gpuctl("--lab", "up", str(file), "--yes", code=1)
    assert REFUSED_AT_LAUNCH[fault] in output
    nodes = what_bills(gpuctl, "refused").get("instances", 0)
    assert nodes <= 1  # the bastion at most, which a `down` takes
    gpuctl("lab", "fault", "clear")
    if what_bills(gpuctl, "refused"):
        gpuctl("--lab", "down", "refused", "--yes")
    assert what_bills(gpuctl, "refused") == {}


def test_throttling_is_outwaited(gpuctl: Gpuctl, tell: Tell, tmp_path: Path) -> None:
    tell("throttle", "3")
    assert "Plan: " in gpuctl("--lab", "plan", str(cluster_file(tmp_path, "slow")))
    listed = gpuctl("lab", "fault", "list")
    assert "now: throttle 3" in listed
