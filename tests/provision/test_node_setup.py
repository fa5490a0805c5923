"""What cloud-init says, judged and shown."""

import json
from typing import Any

import pytest

from nodes.inventory import Node
from provision.setup.node_setup import cloud_init_problem, failure, read_status

NODE = Node(rank=1, name="node1", instance_id="i-1", private_ip="10.213.128.5", gpus=8, slots=8)


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        ({"status": "done", "errors": []}, ""),
        ({"status": "done", "extended_status": "degraded done", "errors": []}, ""),
        ({"status": "degraded", "recoverable_errors": {"WARNING": ["a"]}}, ""),
        (
            {"status": "error", "errors": ["('scripts_user',\n RuntimeError('1 failed'))"]},
            "cloud-init failed: ('scripts_user', RuntimeError('1 failed'))",
        ),
        ({"status": "error"}, "cloud-init failed: no reason given"),
        ({"status": "disabled"}, "cloud-init ended as 'disabled'"),
        ({"status": "running"}, "cloud-init ended as 'running'"),
        ({}, "cloud-init ended as 'unknown'"),
    ],
)
def test_the_json_is_judged(status: dict[str, Any], problem: str) -> None:
    assert cloud_init_problem(status) == problem


def test_dots_before_the_json_do_not_matter() -> None:
    assert read_status("......\n" + json.dumps({"status": "done"}) + "\n") == {"status": "done"}


@pytest.mark.parametrize("text", ["", "no json", "{broken"])
def test_what_is_no_json_is_no_status(text: str) -> None:
    assert read_status(text) == {}


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
