"""The nodes' software, seen on machines that boot: built, checked, and the same after a reboot."""

import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file, read_until
from tests.e2e.region import what_bills

pytestmark = pytest.mark.lab

STATE = "cat /var/lib/gpuctl/steps /var/lib/gpuctl/finished /etc/hosts; ls -lR --full-time /root"
BOOT = "cat /proc/sys/kernel/random/boot_id"


def reboot(gpuctl: Gpuctl, name: str) -> None:
    """The cluster's one node has booted again, and its cloud-init is done."""
    before = gpuctl("--lab", "exec", name, "--", BOOT)
    gpuctl("--lab", "exec", name, "--", "systemctl reboot --no-block")
    deadline = time.monotonic() + 60
    command = f"{BOOT}; cloud-init status --wait > /dev/null"
    while time.monotonic() < deadline:
        with suppress(AssertionError):  # it does not answer yet
            if gpuctl("--lab", "exec", name, "--", command) != before:
                return
        time.sleep(1)
    raise AssertionError("the node did not come back")


def test_a_stock_image_builds_the_tests_and_a_second_boot_changes_nothing(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    setup = {"files": {"/etc/site": "ours\n"}, "commands": ["echo ran >> /root/ran"]}
    stock = {"image": "stock-debian-12", "instance_type": "g5.8xlarge", "setup": setup}
    file = cluster_file(tmp_path, "built", nodes=1, **stock)
    with gpuctl.running("--lab", "up", str(file), "--yes") as up:
        for step in ("hold updates", "Open MPI", "nccl-tests", "verify", "setup 1 of 1"):
            read_until(up, step)
        read_until(up, "is ready")
        assert up.wait(60) == 0
    run = "/root/nccl-tests/build/all_gather_perf -b 8 -e 8 -w 1 -n 1"
    table = gpuctl("--lab", "exec", "built", "--", f"mpirun --allow-run-as-root -n 2 {run}")
    assert "# Out of bounds values : 0 OK" in table
    assert "valid" in gpuctl("--lab", "exec", "built", "--", "cloud-init schema --system").lower()
    before = gpuctl("--lab", "exec", "built", "--", STATE)
    assert "ours" in gpuctl("--lab", "exec", "built", "--", "cat /etc/site")
    reboot(gpuctl, "built")
    assert gpuctl("--lab", "exec", "built", "--", STATE) == before
    output = gpuctl("--lab", "up", str(file), "--yes")
    assert "0 to create, 0 to change, 0 to replace, 0 to delete" in output
    gpuctl("--lab", "down", "built", "--yes")
    assert what_bills(gpuctl, "built") == {}


def test_a_node_that_is_not_as_its_type_fails_up_with_what_was_expected(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    """On slow images that refuse root, with an old cloud-init and a late fabric manager."""
    files = {"/etc/gpuctl-lab/faults.json": '{"gpus": 7, "efa": 3}'}
    faulty = [  # the machines have the faults: without them these commands would end the set-up
        "! cloud-init status --format json",
        "grep -rqx 'PermitRootLogin no' /etc/ssh/sshd_config.d",
        "grep -q 'instances finished' /etc/systemd/system/nvidia-fabricmanager.service.d/late.conf",
        "systemctl show -p ExecStartPre cloud-init-local | grep -q 'sleep 10 ; .*status=0'",
    ]
    changes = {"image": "dlami-al2023", "setup": {"files": files, "commands": faulty}}
    file = cluster_file(tmp_path, "short", nodes=2, **changes)
    late, slow = "nvidia-fabricmanager", "slow-boot"
    old = ("cloud-init", "22.2.2")
    for fault in (old, ("root-login", "off"), (late, "late", "30"), (slow, "10")):
        gpuctl("lab", "fault", "set", *fault)
    output = gpuctl("--lab", "up", str(file), "--yes", code=1)
    gpuctl("lab", "fault", "clear", "cloud-init", "root-login", late, slow)
    for node in ("node0", "node1"):
        lines = [line for line in output.splitlines() if f"{node} (" in line]
        assert any("GPUs: expected 8, actual 7" in line for line in lines), output
        assert any("EFA devices: expected 4, actual 3" in line for line in lines), output
        assert not any("fabric manager" in line for line in lines), output
    gpuctl("--lab", "down", "short", "--yes")
