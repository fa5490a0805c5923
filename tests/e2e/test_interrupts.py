"""Ctrl-C and kill -9 half-way: what exists is told by `status`, and `down` removes all of it."""

import os
import signal
import subprocess
from pathlib import Path

import pytest

from tests.e2e.conftest import DIRECT, Gpuctl, cluster_file, read_until, run_file
from tests.e2e.region import what_bills
from tests.engine.machines import wait_for

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


@pytest.mark.parametrize("moment", ["resources: aws:ec2/subnet", "resources: aws:ec2/instance"])
def test_kill_9_in_the_middle_of_up(gpuctl: Gpuctl, tmp_path: Path, moment: str) -> None:
    name = "killed-" + moment.rpartition("/")[2]
    file = cluster_file(tmp_path, name)
    with gpuctl.running("--lab", "up", str(file), "--yes") as process:
        read_until(process, moment)
        os.killpg(process.pid, signal.SIGKILL)
    assert [c["name"] for c in gpuctl.json("--lab", "status")] == [name]
    assert f"Cluster {name} is gone" in gpuctl("--lab", "down", name, "--yes")
    assert what_bills(gpuctl, name) == {}
    assert gpuctl("--lab", "status") == "No cluster exists.\n"


def test_ctrl_c_in_the_middle_of_up(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "halted")
    with gpuctl.running("--lab", "up", str(file), "--yes") as process:
        read_until(process, "resources: aws:ec2/subnet")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert f"{gpuctl.program} down halted" in output
    assert [c["name"] for c in gpuctl.json("--lab", "status")] == ["halted"]
    gpuctl("--lab", "down", "halted", "--yes")
    assert what_bills(gpuctl, "halted") == {}


def test_kill_9_in_the_middle_of_a_run_and_ctrl_c_in_the_middle_of_down(
    gpuctl: Gpuctl, tmp_path: Path
) -> None:
    file = cluster_file(tmp_path, "both", nodes=1, network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    job = run_file(tmp_path, "both", ["echo up; sleep infinity"], nodes=1)
    with gpuctl.running("--lab", "run", str(job), "--cluster", "both") as process:
        read_until(process, "[node0] up")
        os.killpg(process.pid, signal.SIGKILL)
    assert [c["name"] for c in gpuctl.json("--lab", "status")] == ["both"]
    assert len(left_here(gpuctl, "both")) == 2  # its folder, and what keeps its connections
    with gpuctl.running("--lab", "down", "both", "--yes") as process:
        read_until(process, "destroy: aws:ec2/instance")
        process.send_signal(signal.SIGINT)
        output, _ = process.communicate(timeout=120)
    assert process.returncode == 130, output
    assert f"{gpuctl.program} down both" in output
    gpuctl("--lab", "down", "both", "--yes")
    assert what_bills(gpuctl, "both") == {}
    assert gpuctl.json("--lab", "ps")[0]["status"] == "failed"  # its cluster was removed
    wait_for(lambda: not left_here(gpuctl, "both"), 60)  # the process has been told to end


def left_here(gpuctl: Gpuctl, cluster: str) -> list[str]:
    """What this machine has of the cluster: its folder, and processes that work with that."""
    folder = gpuctl.state / "clusters" / cluster
    found = subprocess.run(
        ["pgrep", "-af", str(folder)], capture_output=True, text=True, check=False
    )
    return found.stdout.splitlines() + [str(folder)] * folder.exists()


def test_kill_9_in_the_middle_of_down(gpuctl: Gpuctl, tmp_path: Path) -> None:
    file = cluster_file(tmp_path, "half", nodes=1, network=DIRECT)
    gpuctl("--lab", "up", str(file), "--yes")
    with gpuctl.running("--lab", "down", "half", "--yes") as process:
        read_until(process, "destroy: aws:ec2/instance")
        os.killpg(process.pid, signal.SIGKILL)
    assert [c["name"] for c in gpuctl.json("--lab", "status")] == ["half"]
    gpuctl("--lab", "down", "half", "--yes")
    assert what_bills(gpuctl, "half") == {}
