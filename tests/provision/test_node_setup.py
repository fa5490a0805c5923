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
from provision.setup.node_setup import WAIT, CloudInitResult, failure, read_result

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


class Machine:
    """A folder with the files that the wait reads, and a cloud-init that notes what it is asked.

    It answers `status: ANSWER`, and like 22.2.2 refuses all options but --long and --wait.
    """

    def __init__(self, folder: Path, answer: str = "done") -> None:
        self.folder = folder
        (old,) = faulty_files({"cloud-init": ("22.2.2",)})
        reply = f"echo $* >> {folder}/asked; echo 'status: {answer}'; exit 0 #"
        program = folder / "bin/cloud-init"
        program.parent.mkdir()
        program.write_text(old.text.replace("exec /usr/bin/cloud-init", reply))
        program.chmod(0o755)
        (folder / "steps").write_text("limits\n")

    def write(self, name: str, text: str) -> None:
        """Write a file in a moment, as cloud-init does."""
        (self.folder / "part").write_text(text)
        (self.folder / "part").rename(self.folder / name)

    def start(self, *, turns: int = 50) -> subprocess.Popen[str]:
        """Start the wait; it asks whether cloud-init still works after each so many turns."""
        script = re.sub("/run/cloud-init|/var/lib/gpuctl", str(self.folder), WAIT)
        assert script.count("turns % 50") == 1
        script = script.replace("turns % 50", f"turns % {turns}")
        path = f"{self.folder}/bin:{os.environ['PATH']}"
        return subprocess.Popen(
            ["bash", "-c", script], env={"PATH": path}, stdout=subprocess.PIPE, text=True
        )

    def result(self, waiting: subprocess.Popen[str]) -> CloudInitResult:
        """Return cloud-init's result as the client reads it, when the wait is over."""
        output, _ = waiting.communicate()
        return read_result(*re.split(r"(?:^|\n)=== .* ===\n", output)[-3:])

    @property
    def asked(self) -> list[str]:
        """The arguments of each call of cloud-init."""
        file = self.folder / "asked"
        return file.read_text().splitlines() if file.exists() else []


STAGE = {"errors": [], "finished": 2.5, "start": 1.5}
NEVER: dict[str, Any] = {"errors": [], "finished": None, "start": None}
STAGES = dict.fromkeys(("init-local", "init", "modules-config", "modules-final"), STAGE)
WARNED = {**STAGE, "recoverable_errors": {"WARNING": ["a", "b"]}}
DONE: tuple[dict[str, Any], dict[str, Any]] = ({"errors": []}, {**STAGES, "stage": None})


def as_file(v1: dict[str, Any]) -> str:
    """As cloudinit/atomic_helper.py writes a file, from 22.2.2 to 25.1.4."""
    return json.dumps({"v1": v1}, indent=1, sort_keys=True) + "\n"


@pytest.mark.parametrize(
    ("stages", "warnings"),
    [({}, 0), ({"modules-init": NEVER}, 0), ({"init": WARNED, "modules-final": WARNED}, 4)],
    ids=["24.1", "22.2.2", "recoverable"],
)
def test_a_cloud_init_whose_files_show_success_is_not_asked(
    tmp_path: Path, stages: dict[str, Any], warnings: int
) -> None:
    machine = Machine(tmp_path)
    machine.write("result.json", as_file(DONE[0]))
    machine.write("status.json", as_file({**DONE[1], **stages}))
    assert machine.result(machine.start()) == CloudInitResult("done", (), warnings)
    assert machine.asked == []


@pytest.mark.parametrize(
    ("result", "stages", "errors"),
    [
        (None, None, None),  # disabled, or not begun
        ({"errors": []}, None, ()),
        ({"errors": ["no"]}, {**DONE[1], "init": {**STAGE, "errors": ["no"]}}, ("no",)),
        ({"errors": []}, {**DONE[1], "init": {**STAGE, "errors": ["no"]}}, ()),
        ({"errors": []}, {**DONE[1], "init": {**STAGE, "finished": None}}, ()),  # killed
        ({"errors": []}, {**DONE[1], "modules-init": NEVER, "modules-config": NEVER}, ()),
        (None, {**DONE[1], "init": {**STAGE, "errors": ["no"]}, "modules-final": NEVER}, None),
        ({}, DONE[1], None),
        ({"errors": []}, {"stage": None}, ()),
    ],
)
def test_a_cloud_init_whose_files_leave_something_open_is_asked(
    tmp_path: Path,
    result: dict[str, Any] | None,
    stages: dict[str, Any] | None,
    errors: tuple[str, ...] | None,
) -> None:
    """Its `status` in 22.2.2 takes --long and --wait, and ends with a usage error otherwise."""
    machine = Machine(tmp_path, "error")
    for name, v1 in (("result.json", result), ("status.json", stages)):
        if v1 is not None:
            machine.write(name, as_file(v1))
    assert machine.result(machine.start()) == CloudInitResult("error", errors)
    assert machine.asked == ["--wait"]


def test_the_wait_ends_with_cloud_inits_result(tmp_path: Path) -> None:
    machine = Machine(tmp_path)
    machine.write("status.json", as_file({**STAGES, "modules-final": NEVER}))
    waiting = machine.start()
    assert waiting.stdout is not None
    assert waiting.stdout.readline() == "limits\n"
    with (tmp_path / "steps").open("a") as steps:
        steps.write("verify\n")
    assert waiting.stdout.readline() == "verify\n"  # it goes on, and prints steps as they begin
    assert waiting.poll() is None
    machine.write("status.json", as_file(DONE[1]))
    machine.write("result.json", as_file(DONE[0]))
    assert machine.result(waiting) == CloudInitResult("done", ())
    assert machine.asked == []


@pytest.mark.parametrize("answer", ["error", "degraded done"])
def test_a_cloud_init_that_died_without_a_result_is_noticed(tmp_path: Path, answer: str) -> None:
    """Versions since 23.3 ask systemd whether a stage was killed."""
    machine = Machine(tmp_path, answer)
    machine.write("status.json", as_file({**STAGES, "modules-final": {**STAGE, "finished": None}}))
    assert machine.result(machine.start(turns=1)) == CloudInitResult(answer, None)
    assert machine.asked == ["", "--wait"]


@pytest.mark.parametrize("answer", ["running", "degraded running"])
def test_a_cloud_init_that_works_is_waited_for(tmp_path: Path, answer: str) -> None:
    machine = Machine(tmp_path, answer)
    machine.write("status.json", as_file({**STAGES, "modules-final": {**STAGE, "finished": None}}))
    os.mkfifo(tmp_path / "asked")
    waiting = machine.start(turns=1)
    with (tmp_path / "asked").open() as asked:
        assert asked.readline() == "\n"
    (tmp_path / "asked").unlink()
    machine.write("status.json", as_file(DONE[1]))
    machine.write("result.json", as_file(DONE[0]))
    assert machine.result(waiting) == CloudInitResult("done", ())
    assert set(machine.asked) <= {""}


def test_the_wait_is_shellcheck_clean() -> None:
    done = subprocess.run(
        ["shellcheck", "--shell=bash", "-"], input=WAIT, capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")


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
