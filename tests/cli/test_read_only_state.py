"""gpuctl whose state folder is on a disk that is mounted read-only."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from typer.testing import Result

from config.target import Target
from engine.contract.event import to_line
from engine.contract.worker_events import Output
from engine.record.history import History
from engine.record.journal_copy import JournalCopy
from provision.state.store import ClusterStore
from tests.cli.test_attach import client, detached  # noqa: F401  fixtures are found by import
from tests.cli.test_homes import as_user
from tests.cli.test_run import cluster, gpuctl_run  # noqa: F401
from tests.engine.conftest import make_plan
from tests.engine.session.test_session import connections  # noqa: F401
from tests.small_disks import read_only

pytestmark = [pytest.mark.lab, pytest.mark.thorough]  # it mounts

RUN = make_plan().run_id


@pytest.fixture
def runs(tmp_path: Path) -> Path:
    """The folder of a run that is over, in the state folder."""
    runs = tmp_path / "state" / "aws" / "runs"
    with History(runs) as history:
        history.begin(make_plan())
        history.mark_lost(RUN, "for the test")
    copy = JournalCopy(runs, RUN)
    line = Output(time=1, rank=0, stream="stdout", text="kept", ends_line=True)
    copy.append(to_line(line))
    copy.close()
    return runs


@pytest.mark.parametrize(
    ("command", "text"),
    [
        (["ps"], "RUN"),
        (["logs", RUN], "[node0] kept\n"),
        (["logs", "-f"], "[node0] kept\n"),
        (["results", RUN], f"Run {RUN}: failed, exit code 125: for the test\n"),
        (["results", RUN, "--json"], "{"),
        (["cost"], "No cluster existed since "),
        (["config"], ""),
        (["--lab=t-down", "status"], "No cluster exists.\n"),
    ],
)
def test_a_reading_command_reads_a_read_only_state(
    command: list[str], text: str, runs: Path, tmp_path: Path
) -> None:
    state = tmp_path / "state"
    with read_only(state):
        done = as_user(tmp_path, *command, GPUCTL_STATE=str(state))
    assert (done.returncode, done.stdout[: len(text)]) == (0, text), done.stderr


def test_a_run_that_cannot_be_recorded_is_refused_and_its_cluster_stays(
    cluster: Target,  # noqa: F811
    gpuctl_run: Callable[..., Result],  # noqa: F811
) -> None:
    cluster.runs.mkdir()
    with read_only(cluster.runs):
        done = gpuctl_run("type: task\nname: job\ncommands: [x]\n", "--on-stop", "destroy")
    assert str(done.exception) == (
        f"{cluster.runs}/runs.sqlite cannot be written: Read-only file system; mount that file"
        " system writable, or set HOME to a folder that you can write"
    )
    assert done.stderr == ""
    assert ClusterStore(cluster).record("demo") is not None


@pytest.mark.parametrize("has_begun", [False, True])
@pytest.mark.usefixtures("connections")
def test_a_run_is_followed_where_nothing_can_be_kept(
    cluster: Target,  # noqa: F811
    detached: Callable[..., str],  # noqa: F811
    tmp_path: Path,
    *,
    has_begun: bool,
) -> None:
    go = tmp_path / "go"
    name = detached(f"echo first; until test -e {go}; do sleep 0.1; done; echo last")
    if has_begun:
        with client("logs", name, "-f") as earlier:
            earlier.read_until("[node0] first\n")
            earlier.process.kill()
    journal = cluster.runs / name / "journal.jsonl"
    before = journal.read_text() if journal.exists() else ""
    with read_only(cluster.runs):
        with client("logs", name, "-f") as follower:
            follower.read_until("[node0] first\n")
            go.touch()
            assert follower.end() == 0, follower.text
        after = journal.read_text() if journal.exists() else ""
    lines = [line for line in follower.text.splitlines() if line.startswith("[")]
    assert sorted(lines) == ["[node0] first", "[node0] last", "[node1] first", "[node1] last"]
    assert after == before
    with client("logs", name, "-f", "--json") as again:
        assert again.end() == 0
    texts = [json.loads(line)["text"] for line in again.text.splitlines()]
    assert sorted(texts) == ["first", "first", "last", "last"]
