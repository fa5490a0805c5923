"""The nodes' software and hardware are checked, on machines that boot."""

import re
import time
from contextlib import suppress
from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, cluster_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

BOOT = "cat /proc/sys/kernel/random/boot_id"


def reboot(gpuctl: Gpuctl, name: str) -> None:
    """The cluster's nodes have booted again, and their cloud-init is done."""
    before = boots(gpuctl, name)
    gpuctl("--lab", "exec", name, "--", "systemctl reboot --no-block")
    deadline = time.monotonic() + 180
    while time.monotonic() < deadline:
        with suppress(AssertionError):  # they do not answer yet
            after = boots(gpuctl, name)
            if len(after) == len(before) and not before & after:
                return
        time.sleep(1)
    raise AssertionError("the nodes did not come back")


def boots(gpuctl: Gpuctl, name: str) -> set[str]:
    """The ids of the nodes' boots, whose cloud-init is done."""
    shown = gpuctl("--lab", "exec", name, "--", f"{BOOT}; cloud-init status --wait > /dev/null")
    return set(re.findall(r"^[0-9a-f-]{36}$", shown, re.MULTILINE))


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
