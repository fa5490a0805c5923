"""What cloud-init says, judged and shown."""

import json
import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from lab.machines.image_faults import faulty_files
from nodes.inventory import Node
from provision.setup.cloud_init_result import CloudInitResult, read_result
from provision.setup.node_setup import WAIT, failure

NODE = Node(rank=1, name="node1", instance_id="i-1", private_ip="10.213.128.5", gpus=8, slots=8)


def files(*errors: str, **recoverable: list[str]) -> tuple[str, str]:
    """result.json and status.json, as cloud-init writes them."""
    stage: dict[str, Any] = {"errors": list(errors), "start": 1.5, "finished": 2.5}
    if recoverable:
        stage["recoverable_errors"] = recoverable
    v1 = {"datasource": "DataSourceEc2", "init": stage, "modules-final": stage, "stage": None}
    result = {"v1": {"datasource": "DataSourceEc2", "errors": list(errors)}}
    return json.dumps(result, indent=1), json.dumps({"v1": v1}, indent=1)


@pytest.mark.parametrize(
    ("status", "errors", "problem"),
    [
        ("status: done", (), ""),
        ("......\nstatus: done", (), ""),
        ("status: degraded done", (), ""),
        (
            "status: error",
            ("('scripts_user',\n RuntimeError('1 failed'))",),
            "cloud-init failed: ('scripts_user', RuntimeError('1 failed'))",
        ),
        ("status: error", (), "cloud-init failed: no reason given"),
        ("status: disabled", (), "cloud-init ended as 'disabled'"),
        ("status: running", (), "cloud-init ended as 'running'"),
        ("", (), "cloud-init ended as 'unknown'"),
    ],
)
def test_status_and_result_are_judged(status: str, errors: tuple[str, ...], problem: str) -> None:
    assert read_result(status, *files(*errors)).problem == problem


@pytest.mark.parametrize("text", ["", "no json", "{broken", "[]", '{"v1": []}'])
def test_a_cloud_init_without_a_result_did_not_succeed(text: str) -> None:
    assert read_result("status: done", text, text).problem == (
        "cloud-init ended as 'done' without a result in /run/cloud-init/result.json"
    )


def test_warnings_are_counted_where_cloud_init_reports_them() -> None:
    assert read_result("status: done", *files()).warnings == 0  # before 23.4 it reports none
    assert read_result("status: done", *files(WARNING=["a", "b"], DEPRECATED=["c"])).warnings == 6


def test_the_wait_asks_for_nothing_that_cloud_init_22_2_lacks(tmp_path: Path) -> None:
    """Its `status` takes --long and --wait, and ends with a usage error for anything else."""
    (old,) = faulty_files({"cloud-init": ("22.2.2",)})
    program = tmp_path / "bin/cloud-init"
    program.parent.mkdir()
    program.write_text(old.text.replace("exec /usr/bin/cloud-init", "echo 'status: done' #"))
    program.chmod(0o755)
    result, stages = files()
    (tmp_path / "result.json").write_text(result)
    (tmp_path / "status.json").write_text(stages)
    (tmp_path / "steps").write_text("done\n")
    script = re.sub("/run/cloud-init|/var/lib/gpuctl", str(tmp_path), WAIT)
    path = f"{program.parent}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-c", script], env={"PATH": path}, capture_output=True, text=True, check=True
    )
    parts = re.split(r"\n=== .* ===\n", done.stdout)
    assert read_result(*parts[-3:]) == CloudInitResult("done", ())


def test_a_failing_step_is_shown_with_its_own_output_alone() -> None:
    details = (
        "Cloud-init v. 22.4.2 running\n==> limits\n==> setup 1 of 2: make\ncc a.c\n"
        "a.c:1: error: expected ';'\n"
        "gpuctl: 'setup 1 of 2: make' failed with exit code 2\n"
        "2026-11-20 cc_scripts_user.py[WARNING]: Failed to run module scripts-user\n"
        "\n=== cloud-init.log ===\n2026-11-20 WARNING something\n"
    )
    error = failure(NODE, "cloud-init failed: ('scripts_user', ...)", details)
    assert str(error) == (
        "node1 (10.213.128.5): 'setup 1 of 2: make' failed with exit code 2; its output:\n"
        "    | cc a.c\n"
        "    | a.c:1: error: expected ';'"
    )


def test_long_output_is_cut_to_its_end() -> None:
    lines = "\n".join(f"line {i}" for i in range(100))
    details = f"==> setup 1 of 1: x\n{lines}\ngpuctl: 'setup 1 of 1: x' failed with exit code 1\n"
    shown = str(failure(NODE, "", details)).splitlines()
    assert (shown[1], shown[-1], len(shown)) == ("    | line 80", "    | line 99", 21)


def test_a_failing_module_is_shown_with_its_log() -> None:
    details = "all fine\n\n=== cloud-init.log ===\n2026 util.py[WARNING]: Failed growpart\n"
    assert str(failure(NODE, "cloud-init failed: growpart", details)) == (
        "node1 (10.213.128.5): cloud-init failed: growpart; its log says:\n"
        "    | 2026 util.py[WARNING]: Failed growpart"
    )
