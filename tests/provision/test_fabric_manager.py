"""NVIDIA's fabric manager: the package of the driver's version, InfiniBand, a late start."""

import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from provision.setup.software.gpu_hardware import Hardware
from provision.setup.software.script import setup_script
from tests.provision.test_cloud_init import P4D, cluster
from tests.provision.ubuntu import Ubuntu

pytestmark = pytest.mark.slow

B200 = Hardware("p6-b200.48xlarge", gpus=8, sm="100", efa=8, nvswitch=True, local_disks=8)
LATE = "not all local fabric manager instances finished their configuration"


def step(
    ubuntu: Ubuntu, machine: Hardware = P4D, image: str = "stock-ubuntu-24.04"
) -> "subprocess.CompletedProcess[str]":
    """The step `fabric manager` alone, as setup runs it."""
    script = setup_script(cluster(image=image), replace(machine, local_disks=0))
    begin, _, rest = script.partition("if gpuctl_begin 'host keys'; then\n")
    body = rest.partition("if gpuctl_begin 'fabric manager'; then\n")[2]
    commands = body.partition("\nfi\n\nif gpuctl_begin")[0]
    assert "fabric" in commands
    return ubuntu.run(f"{begin}\nif gpuctl_begin 'fabric manager'; then\n{commands}\nfi\n")


@pytest.mark.parametrize(
    ("driver", "package"),
    [
        ("580.95.05", "nvidia-fabricmanager"),
        ("580.105.08", "nvidia-fabricmanager"),
        ("575.57.08", "nvidia-fabricmanager-575"),
        ("570.172.08", "nvidia-fabricmanager-570"),
    ],
)
def test_the_package_of_the_drivers_version_is_installed_whatever_its_name(
    tmp_path: Path, driver: str, package: str
) -> None:
    ubuntu = Ubuntu(tmp_path, driver=driver)
    done = step(ubuntu)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ubuntu.state["installed"] == {package: f"{driver}-1"}
    assert ubuntu.state["reason"] is None  # it runs


def test_a_driver_without_a_fabric_manager_is_named_with_what_exists(tmp_path: Path) -> None:
    done = step(Ubuntu(tmp_path, driver="570.86.10"))
    assert done.returncode == 1
    assert (
        "no nvidia-fabricmanager and no nvidia-fabricmanager-570 has the driver's version"
        " 570.86.10; the repositories have: nvidia-fabricmanager|580.105.08-1|"
    ) in done.stdout
    assert "nvidia-fabricmanager-570|570.172.08-1|" in done.stdout


def test_b200_gets_infiniband_and_the_subnet_manager(tmp_path: Path) -> None:
    ubuntu = Ubuntu(tmp_path, nvlink5=True)
    done = step(ubuntu, B200)
    assert done.returncode == 0, done.stdout + done.stderr
    assert {"infiniband-diags", "nvlsm"} < set(ubuntu.state["installed"])
    assert ubuntu.state["modules"] == ["ib_umad"]
    assert (tmp_path / "etc/modules-load.d/gpuctl.conf").read_text() == "ib_umad\n"
    assert ubuntu.state["reason"] is None


@pytest.mark.parametrize("image", ["stock-ubuntu-24.04", "dlami-ubuntu-24.04", "dlami-al2023"])
def test_a_start_that_fails_for_minutes_is_waited_for(tmp_path: Path, image: str) -> None:
    ubuntu = Ubuntu(tmp_path, failures=60, installed={"nvidia-fabricmanager": "580.95.05-1"})
    done = step(ubuntu, image=image)
    assert done.returncode == 0, done.stdout + done.stderr
    assert ubuntu.state["failures"] == 0
    unit = tmp_path / "etc/systemd/system/nvidia-fabricmanager.service.d/gpuctl.conf"
    assert "Restart=on-failure\nRestartSec=10\n" in unit.read_text()  # at later boots too


def test_one_that_never_starts_ends_the_step_with_its_own_words(tmp_path: Path) -> None:
    done = step(Ubuntu(tmp_path, failures=1000))
    assert done.returncode == 1
    assert done.stdout.endswith(
        f"it did not start in ten minutes:\nnv-fabricmanager: {LATE}\n"
        "gpuctl: 'fabric manager' failed with exit code 1\n"
    )
