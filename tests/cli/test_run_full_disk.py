"""`gpuctl run` whose state folder has no room: what goes on is named, and nothing else breaks."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner, Result

from cli import main
from cli.main import app
from config.errors import StateError
from config.target import Target
from engine.record.history import History
from engine.record.run_errors import RunGoesOn
from tests.cli.conftest import remember
from tests.engine.conftest import make_inventory
from tests.engine.session.test_session import (
    LocalConnections,
    connections,  # noqa: F401  a fixture
    on_this_machine,
)
from tests.small_disks import fill, small_disk

pytestmark = pytest.mark.lab

JOB = """\
type: task
name: job
nodes: 2
commands: ["head -c 300000 /dev/zero | tr '\\\\0' x", "echo; echo the end"]
"""


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    """The disk of the state folder, of 1 MiB."""
    with small_disk(tmp_path / "home", "1m") as home:
        yield home


@pytest.fixture
def cluster(
    connections: LocalConnections,  # noqa: F811
    disk: Path,
    remembered: Target,
) -> Target:
    """Two nodes that are ready, whose commands run here."""
    remember(on_this_machine(make_inventory(2)), remembered)
    return remembered


def run(tmp_path: Path) -> Result:
    file = tmp_path / "run.yaml"
    file.write_text(JOB)
    return CliRunner().invoke(app, ["run", str(file)])


def test_nothing_runs_that_cannot_be_remembered(
    cluster: Target, disk: Path, tmp_path: Path
) -> None:
    fill(disk, 0)
    refused = run(tmp_path)
    assert isinstance(refused.exception, StateError), refused.exception
    database = cluster.runs / "runs.sqlite"
    assert str(refused.exception) in {
        f"{path} cannot be written: {why};"
        " make room on that disk; `gpuctl status` shows what exists and bills"
        for path, why in (
            (cluster.runs, "No space left on device"),
            (database, "database or disk is full"),
            (database, "unable to open database file"),
        )
    }
    (disk / "others").unlink()
    with History(cluster.runs) as history:
        assert history.runs() == ()


def test_a_run_goes_on_that_its_client_cannot_write_down(
    cluster: Target, disk: Path, tmp_path: Path
) -> None:
    with History(cluster.runs):
        pass
    others = fill(disk, 128 << 10)
    told = run(tmp_path)
    assert isinstance(told.exception, RunGoesOn), told.exception
    others.unlink()
    with History(cluster.runs) as history:
        (record,) = history.runs()
    name = record.run_id
    journal = cluster.runs / name / "journal.jsonl"
    assert str(told.exception) == (
        f"run {name} goes on without this client: {journal} cannot be written:"
        f" No space left on device; `gpuctl attach {name}` follows it,"
        f" `gpuctl stop {name}` ends it"
    )
    logs = CliRunner().invoke(app, ["logs", name, "-f"])
    assert logs.exit_code == 0, logs.output
    ends = [line for line in logs.stdout.splitlines() if "the end" in line]
    assert sorted(ends) == ["[node0] the end", "[node1] the end"]
    assert sum(line.count("x") for line in logs.stdout.splitlines()) == 600_000
    with History(cluster.runs) as history:
        assert history.find(name).status == "done"


@pytest.mark.parametrize("number", [28, 122])
def test_whatever_has_no_room_is_no_mistake_of_gpuctls(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], number: int
) -> None:
    def fail(obj: object) -> None:
        del obj
        raise OSError(number, os.strerror(number), "/state/file")

    monkeypatch.setattr(main, "app", fail)
    monkeypatch.setattr("sys.argv", ["gpuctl", "status"])
    with pytest.raises(SystemExit) as end:
        main.main()
    assert end.value.code == 1
    assert capsys.readouterr().err == (
        f"gpuctl: error: /state/file cannot be written: {os.strerror(number)};"
        " make room on that disk; `gpuctl status` shows what exists and bills\n"
    )
