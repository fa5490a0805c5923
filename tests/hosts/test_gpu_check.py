"""`scripts/gpu-check` on a machine of the lab, whose GPUs are stand-ins."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.e2e.conftest import ROOT
from tests.evidence import note
from tests.hosts.test_own_machines import differences, hosts_file, trees
from tests.lab.conftest import Boot

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def test_each_step_has_a_verdict_and_the_machine_is_as_before(
    boot: Boot, key: Path, tmp_path: Path
) -> None:
    machine = boot("dlami", "10.213.0.16")
    machine.wait()
    before = trees([machine])
    hosts = hosts_file(tmp_path, "gpu-check", [machine], key)
    record = tmp_path / "record.json"
    done = subprocess.run(
        [sys.executable, "-m", "smoke.gpu_check", "--hosts", str(hosts), "--record", str(record)],
        env=os.environ | {"HOME": str(tmp_path), "XDG_STATE_HOME": str(tmp_path / "state")},
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    note(done.stdout + done.stderr)
    steps = json.loads(record.read_text())["steps"]
    no_torch = ("left out", "python3 of the node has no PyTorch that sees a GPU")
    assert {step["title"]: (step["verdict"], step["why"]) for step in steps} == {
        "up": ("fine", ""),
        "nvidia-smi": ("fine", ""),
        "health": ("fine", ""),
        "nccl-tests": ("fine", ""),
        "DDP under torchrun, and its metrics": no_torch,
        "a killed rank is named": no_torch,
        "the kernel's log": ("left out", "the kernel's log may not be read there"),
        "down": ("fine", ""),
    }
    assert done.returncode == 0
    assert differences(before, trees([machine])) == [[]]
