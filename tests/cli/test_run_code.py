"""`gpuctl run` with files of the user's: consent, what would travel, and outputs at the end."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from config.errors import InputError, InvalidFiles, NodeError
from config.target import Target
from engine.contract.plan import LaunchPlan
from engine.record.result import RunResult
from engine.record.run_errors import RunLost
from engine.session.outputs import Fetched
from tests.cli.conftest import complaints, is_removed
from tests.cli.test_run import (
    cluster,  # noqa: F401  fixtures are found by import
    finished,
    gpuctl_run,  # noqa: F401
    rented,  # noqa: F401
    running,
    runs,
)
from tests.engine.session.test_session import connections  # noqa: F401

HEAD = "type: task\nname: job\nnodes: 2\ncommands: [python3 train.py]\n"
WITH_OUTPUTS = f"{HEAD}outputs: [checkpoints/]\n"

Call = Callable[..., Result]


@pytest.fixture
def mine(tmp_path: Path) -> Path:
    folder = tmp_path / "mine"
    folder.mkdir()
    (folder / "train.py").write_text("print()\n")
    return folder


@pytest.fixture
def sent(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The paths that were sent to nodes."""
    paths: list[str] = []

    async def send(tree: object, *_: object) -> None:
        paths.extend(entry[0] for entry in tree.entries)  # type: ignore[attr-defined]

    monkeypatch.setattr("operations.files.send_tree", send)
    running(monkeypatch, finished)
    return paths


def test_a_folder_next_to_the_run_file_is_sent(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    mine: Path,
    sent: list[str],
) -> None:
    done = gpuctl_run(f"{HEAD}workdir: mine\n")
    assert done.exit_code == 0, done.output
    assert sent == ["train.py"]


def test_a_path_outside_is_sent_only_if_the_user_says_so(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    mine: Path,
    sent: list[str],
    tmp_path: Path,
) -> None:
    other = tmp_path.parent / f"{tmp_path.name}-other"
    other.mkdir()
    (other / "key").write_text("key")
    text = f"{HEAD}workdir: mine\nfiles: [../{other.name}/key:key]\n"
    refused = gpuctl_run(text)
    assert isinstance(refused.exception, InputError)
    assert str(refused.exception) == (
        f"there is no terminal to ask on: job sends {other}/key, which is not in the run file's"
        f" folder. Send it?; add --send {other}/key if that is what you want"
    )
    assert (sent, runs(cluster)) == ([], 0)
    assert gpuctl_run(text, "--send", f"{other}/key").exit_code == 0
    assert sent == ["key", "train.py"]


def test_a_missing_folder_ends_it_before_anything_runs(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    sent: list[str],
) -> None:
    done = gpuctl_run(f"{HEAD}workdir: mine\n")
    assert isinstance(done.exception, InvalidFiles)
    assert done.exception.exit_code == 2
    assert "run.yaml:5:10: E242 'workdir' is 'mine', which does not exist" in str(done.exception)
    assert (sent, runs(cluster)) == ([], 0)


def test_a_dry_run_lists_what_would_travel(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    mine: Path,
    sent: list[str],
    tmp_path: Path,
) -> None:
    (mine / "data").mkdir()
    (mine / "data" / "x").write_bytes(b"\0" * 2040)
    text = f"{WITH_OUTPUTS}workdir: mine\n"
    lines = gpuctl_run(text, "--dry-run").stdout.splitlines()
    at = next(n for n, line in enumerate(lines) if line.startswith("working folder "))
    assert "/runs/job-" in lines[at]
    assert lines[at].endswith("/work")
    assert lines[at + 1].startswith("code ")
    assert lines[at + 1].endswith(": 2 files, 2 KiB")
    assert lines[at + 2 : at + 5] == [
        "  data/x  2 KiB",
        "  train.py  1 KiB",
        f"outputs checkpoints/ come back to {tmp_path}/outputs/{lines[0].split()[1]}",
    ]
    document = json.loads(gpuctl_run(text, "--dry-run", "--json").stdout)
    assert [(one["path"], one["kind"], one["size"]) for one in document["travels"]] == [
        ("data", "folder", 0),
        ("data/x", "file", 2040),
        ("train.py", "file", 8),
    ]
    assert document["code"]["files"] == 2
    assert sent == []


@pytest.fixture
def order(cluster: Target, monkeypatch: pytest.MonkeyPatch) -> list[str]:  # noqa: F811
    """What happened with outputs and cluster, in order."""
    seen: list[str] = []

    async def fetch(plan: LaunchPlan, inventory: object, folder: Path, report: object) -> Fetched:
        seen.append("too late" if is_removed(cluster) else "fetched")
        return Fetched(folder, 3, 5 << 20, ("node1: no space",))

    monkeypatch.setattr("operations.files.fetch_outputs", fetch)
    return seen


def test_outputs_come_back_before_the_cluster_goes(
    rented: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    order: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running(monkeypatch, finished)
    done = gpuctl_run(WITH_OUTPUTS, "--on-stop", "destroy")
    assert done.exit_code == 0, done.output
    assert (order, is_removed(rented)) == (["fetched"], True)
    (line,) = [line for line in done.stdout.splitlines() if line.startswith("-- outputs")]
    assert line.startswith(f"-- outputs: 3 files, 5.0 MiB in {tmp_path}/outputs/job-")
    assert complaints(done) == ["gpuctl: warning: outputs did not come back: node1: no space"]


def test_each_run_has_a_folder_for_outputs_next_to_its_file_or_where_the_option_says(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    order: list[str],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    running(monkeypatch, finished)
    (tmp_path / "elsewhere").mkdir()
    monkeypatch.chdir(tmp_path / "elsewhere")
    ends = [
        json.loads(gpuctl_run(WITH_OUTPUTS, "--json", *options).stdout)
        for options in ((), (), ("--outputs", "kept"))
    ]
    assert [end["outputs"] for end in ends] == [
        f"{tmp_path}/outputs/{ends[0]['run_id']}",
        f"{tmp_path}/outputs/{ends[1]['run_id']}",
        f"{tmp_path}/elsewhere/kept/{ends[2]['run_id']}",
    ]


def test_outputs_have_a_folder_that_can_be_written_before_the_run_starts(
    cluster: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    sent: list[str],
    tmp_path: Path,
) -> None:
    (tmp_path / "outputs").touch()
    done = gpuctl_run(WITH_OUTPUTS)
    assert str(done.exception) == (
        f"outputs cannot come back to {tmp_path}/outputs: {tmp_path}/outputs: it is not a folder;"
        " name another folder with --outputs DIR"
    )
    assert "outputs checkpoints/ come back to /results/job-" in (
        gpuctl_run(WITH_OUTPUTS, "--dry-run", "--outputs", "/results").stdout
    )
    done = gpuctl_run(HEAD, "--outputs", "/results")
    assert str(done.exception) == (
        f"--outputs is '/results', but {tmp_path}/run.yaml has no outputs; name what comes back in"
        " the file: `outputs: [checkpoints/]`"
    )
    assert runs(cluster) == 0


def test_outputs_of_a_lost_run_come_back_too(
    rented: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    order: list[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def lose(plan: LaunchPlan) -> RunResult:
        raise RunLost("node0 was lost", "")

    running(monkeypatch, lose)
    done = gpuctl_run(WITH_OUTPUTS, "--on-stop", "destroy")
    assert isinstance(done.exception, RunLost)
    assert (order, is_removed(rented)) == (["fetched"], True)


@pytest.mark.parametrize(
    ("error", "why"),
    [
        (NodeError("node0 did not answer", "hint"), "node0 did not answer; hint"),
        (OSError(28, "No space left on device"), "[Errno 28] No space left on device"),
        (KeyboardInterrupt(), "interrupted"),
    ],
)
def test_outputs_that_do_not_come_back_keep_no_cluster(
    rented: Target,  # noqa: F811
    gpuctl_run: Call,  # noqa: F811
    monkeypatch: pytest.MonkeyPatch,
    error: BaseException,
    why: str,
) -> None:
    async def fail(*_: object) -> Fetched:
        raise error

    running(monkeypatch, finished)
    monkeypatch.setattr("operations.files.fetch_outputs", fail)
    done = gpuctl_run(WITH_OUTPUTS, "--on-stop", "destroy")
    assert done.exit_code == 0, done.output
    assert is_removed(rented)
    assert complaints(done) == [f"gpuctl: warning: outputs did not come back: {why}"]
