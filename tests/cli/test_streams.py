"""Commands whose stdout or stderr is closed, full, or read by nobody."""

import subprocess
from contextlib import redirect_stdout
from pathlib import Path

import pytest

from cli.output import Output
from cli.render.followed_run import show_detached
from cli.terminal import name_streams
from engine.record.run_errors import RunGoesOn
from operations.chosen_target import ChosenTarget
from tests.cli.test_command import COMMAND
from tests.cli.test_exec_processes import cluster, environment  # noqa: F401  a fixture
from tests.engine.session.test_session import job
from tests.nodes.conftest import Site, site  # noqa: F401  a fixture

pytestmark = pytest.mark.slow

FULL = (
    "gpuctl: error: stdout cannot be written: No space left on device; send stdout to another file,"
    " or to /dev/null; `gpuctl status` shows what exists\n"
)


def shell(line: str, home: Path) -> subprocess.CompletedProcess[str]:
    """Run the shell's line, in which `gpuctl` is the command; its exit code is gpuctl's."""
    script = f'gpuctl() {{ "{COMMAND}" "$@"; }}\n{line}'
    kept = {"HOME": str(home), "AWS_EC2_METADATA_DISABLED": "true"}
    return subprocess.run(
        ["bash", "-c", script],
        env=environment(home) | kept, capture_output=True, text=True, check=False, timeout=60,
    )  # fmt: skip


@pytest.mark.parametrize("command", ["ps", "ps --json", "--help", "config"])
def test_a_full_disk_behind_stdout_is_named(command: str, tmp_path: Path) -> None:
    done = shell(f"gpuctl {command} > /dev/full", tmp_path)
    assert (done.returncode, done.stderr) == (1, FULL)


@pytest.mark.parametrize("command", ["ps", "doctor", "--help"])
def test_a_closed_stdout_is_as_dev_null(command: str, tmp_path: Path) -> None:
    expected = shell(f"gpuctl {command} > /dev/null", tmp_path)
    done = shell(f"gpuctl {command} >&-", tmp_path)
    assert (done.returncode, done.stderr) == (expected.returncode, expected.stderr)


def test_an_error_is_printed_while_stdout_and_stdin_are_closed(tmp_path: Path) -> None:
    done = shell("gpuctl exec --region us-east-1 demo true <&- >&-", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpuctl: error: there is no cluster 'demo'")
    done = shell("gpuctl --lab=t-down down demo <&-", tmp_path)
    assert done.returncode == 2
    assert done.stderr.startswith("gpuctl: error: the lab is not running")


@pytest.mark.parametrize("where", ["2>&-", "2> /dev/full", "<&- >&- 2>&-"])
def test_an_error_that_cannot_be_printed_keeps_its_exit_code(where: str, tmp_path: Path) -> None:
    assert shell(f"gpuctl up nowhere.yaml {where}", tmp_path).returncode == 2


@pytest.mark.parametrize("command", ["ps", "--help"])
def test_a_reader_that_has_gone_ends_a_reading_command_silently(
    command: str, tmp_path: Path
) -> None:
    done = shell(f"gpuctl {command} | true; exit ${{PIPESTATUS[0]}}", tmp_path)
    assert done.stderr == ""
    assert done.returncode in (0, 1)  # `true` may end later than gpuctl prints


@pytest.mark.parametrize(
    ("where", "complaint"), [("> /dev/full", FULL), ("| true; exit ${PIPESTATUS[0]}", "")]
)
def test_exec_whose_answers_cannot_be_printed_does_not_blame_the_broker(
    where: str,
    complaint: str,
    cluster: Site,  # noqa: F811
    tmp_path: Path,
) -> None:
    ran = tmp_path / "ran"
    done = shell(f"gpuctl exec demo -- 'touch {ran}; echo hi' {where}", tmp_path)
    assert (done.returncode, done.stderr) == (1, complaint)
    assert ran.exists()


def test_a_run_that_was_started_goes_on_although_its_name_cannot_be_printed() -> None:
    plan = job("sleep 1")
    with (
        pytest.raises(RunGoesOn) as left,
        Path("/dev/full").open("w") as full,
        redirect_stdout(full),
    ):
        name_streams()
        show_detached(ChosenTarget(), plan, Output())
    assert str(left.value) == (
        f"run {plan.run_id} goes on without this client: stdout cannot be written: No space left on"
        f" device; `gpuctl attach {plan.run_id}` follows it, `gpuctl stop {plan.run_id}` ends it"
    )
