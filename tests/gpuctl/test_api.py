"""`import gpuctl` in a program: names, errors, consent, event loops. Agents are real."""

import asyncio
import logging
import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

import gpuctl
from config.target import Target
from provision.state.store import ClusterStore
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]


def run_file(folder: Path, text: str = "commands: [echo hi; exit 3]") -> Path:
    file = folder / "run.yaml"
    file.write_text(f"type: task\nname: job\nnodes: 2\n{text}\n")
    return file


def python(program: str, *paths: Path) -> subprocess.CompletedProcess[str]:
    path = ":".join(map(str, (*paths, ROOT)))
    return subprocess.run(
        [sys.executable, "-c", program],
        cwd="/",
        env={"PYTHONPATH": path},
        capture_output=True,
        text=True,
        check=False,
    )


def test_import_alone_imports_no_room() -> None:
    done = python("import sys, gpuctl; print({'config', 'operations', 'typing'} & {*sys.modules})")
    assert (done.stdout, done.stderr) == ("set()\n", "")


def test_a_package_that_hides_a_room_is_named(tmp_path: Path) -> None:
    (tmp_path / "nodes").mkdir()
    (tmp_path / "nodes/__init__.py").touch()
    done = python("from gpuctl import up", tmp_path)
    assert done.stderr.splitlines()[-1] == (
        f"ImportError: gpuctl: its package 'nodes' is hidden by {tmp_path}/nodes; unset PYTHONPATH,"
        " and install gpuctl on its own (uv tool install, pipx)"
    )


def test_an_unknown_name_is_an_attribute_error_and_dir_has_the_known_ones() -> None:
    assert {"up", "Cluster", "GpuctlError"} < set(dir(gpuctl))
    with pytest.raises(AttributeError) as caught:
        getattr(gpuctl, "upp")  # noqa: B009  mypy knows that there is none
    assert str(caught.value) == "module 'gpuctl' has no attribute 'upp'"


def test_a_job_that_fails_is_a_result(cluster: Target, tmp_path: Path) -> None:
    run = gpuctl.cluster("demo").run(run_file(tmp_path))
    record = run.wait("5m")
    assert (record.status, record.exit_code) == ("failed", 3)
    assert {(line.rank, line.text) for line in run.logs()} == {(0, "hi"), (1, "hi")}
    assert run.attach().exit_code == 3
    assert [run.record.run_id for run in gpuctl.runs()] == [gpuctl.run().run_id] == [run.run_id]


def test_a_run_that_does_not_end_in_time_is_a_timeout(cluster: Target, tmp_path: Path) -> None:
    run = gpuctl.cluster("demo").run(run_file(tmp_path, "commands: [sleep 1000]"))
    with pytest.raises(TimeoutError, match="did not end within 0:00:00; it goes on"):
        run.wait(timedelta())
    assert run.stop().result.status == "stopped"


def test_a_call_works_where_an_event_loop_runs(cluster: Target, tmp_path: Path) -> None:
    async def cell() -> gpuctl.Run:
        return gpuctl.cluster("demo").run(run_file(tmp_path))

    run = asyncio.run(cell())

    async def next_cell() -> int | None:
        return run.wait().exit_code

    assert asyncio.run(next_cell()) == 3


def test_an_error_in_an_event_loop_is_the_operations_own(remembered: Target) -> None:
    async def cell() -> None:
        gpuctl.cluster("demo").inventory()

    with pytest.raises(gpuctl.InputError, match="no cluster 'demo'"):
        asyncio.run(cell())


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            "commands: [x]\nenv: {KEY: {secret: AWS_SECRET_ACCESS_KEY}}",
            "job takes AWS_SECRET_ACCESS_KEY from your environment for the job; pass"
            " secrets=('AWS_SECRET_ACCESS_KEY',) if it may",
        ),
        (
            "commands: [x]\nworkdir: ../data",
            "job sends {folder}/data, which is not in the run file's folder; pass"
            " send=('{folder}/data',) if it may",
        ),
    ],
)
def test_what_a_person_would_be_asked_for_is_an_argument(
    cluster: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, text: str, message: str
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
    (tmp_path / "data").mkdir()
    (tmp_path / "runs").mkdir()
    with pytest.raises(gpuctl.InputError) as caught:
        gpuctl.cluster("demo").run(run_file(tmp_path / "runs", text))
    assert str(caught.value) == message.format(folder=tmp_path)
    assert gpuctl.runs() == (), "nothing was started"


def test_consent_starts_the_run(
    cluster: Target, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "hunter2-hunter2")
    file = run_file(tmp_path, "commands: [x]\nenv: {KEY: {secret: AWS_SECRET_ACCESS_KEY}}")
    run = gpuctl.cluster("demo").run(file, secrets=("AWS_SECRET_ACCESS_KEY",))
    assert run.wait().exit_code == 127


def test_a_wrong_duration_names_its_argument(remembered: Target) -> None:
    with pytest.raises(gpuctl.InputError) as caught:
        gpuctl.cluster("demo").extend("soon")
    assert str(caught.value) == (
        "by is 'soon': it must be a whole number (at most 6 digits) and a unit: s, m, h or d (30m,"
        " 8h); write 30m, 8h or 2d"
    )


def test_the_folders_with_records_are_closed_to_others(remembered: Target) -> None:
    gpuctl.cluster("demo")
    folders = (remembered.state.parent, remembered.state)
    assert [folder.stat().st_mode & 0o777 for folder in folders] == [0o700, 0o700]


def test_warnings_are_logged(remembered: Target, caplog: pytest.LogCaptureFixture) -> None:
    gpuctl.LoggingWatcher().warn("look out")
    assert caplog.record_tuples == [("gpuctl", logging.WARNING, "look out")]


def test_a_block_that_removed_its_cluster_itself_ends_without_a_removal(
    remembered: Target,
) -> None:
    remember(make_inventory(2), remembered)
    with pytest.raises(ValueError, match="mine"), gpuctl.cluster("demo"):
        ClusterStore(remembered).forget("demo")
        raise ValueError("mine")
