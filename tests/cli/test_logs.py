"""`gpuctl logs`: what a run printed, all of it or one rank's."""

import json

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.target import Target
from engine.events import NodeReady, Output
from engine.history import History
from engine.journal_copy import JournalCopy
from tests.engine.conftest import make_plan


@pytest.fixture
def run_id(remembered: Target) -> str:
    """A run of two nodes that is over."""
    plan = make_plan()
    with History(remembered.runs) as history:
        history.begin(plan)
        history.mark_lost(plan.run_id, "for the test")
    record = JournalCopy(remembered.runs, plan.run_id)
    for rank, text in ((0, "one"), (1, "two"), (0, "three"), (1, "four")):
        record.append(NodeReady(time=1, rank=rank).model_dump_json())
        line = Output(time=1, rank=rank, stream="stdout", text=text, ends_line=True)
        record.append(line.model_dump_json())
    record.close()
    return plan.run_id


@pytest.mark.parametrize(
    ("options", "lines"),
    [
        ([], ["[0] one", "[1] two", "[0] three", "[1] four"]),
        (["--rank", "0"], ["[0] one", "[0] three"]),
        (["--rank", "1"], ["[1] two", "[1] four"]),
        (["--rank", "1", "-f"], ["[1] two", "[1] four"]),
        (["--rank", "2"], []),
    ],
)
def test_one_rank_or_all(run_id: str, options: list[str], lines: list[str]) -> None:
    done = CliRunner().invoke(app, ["logs", run_id, *options])
    assert done.exit_code == 0, done.output
    assert done.stdout.splitlines() == lines


def test_without_a_name_the_newest_run_is_meant(run_id: str) -> None:
    for command in ("logs", "results"):
        done = CliRunner().invoke(app, [command])
        assert done.exit_code == 0, done.output
        assert done.stderr == f"gpuctl: run {run_id}, the newest\n"
    done = CliRunner().invoke(app, ["results"])
    assert done.stdout.splitlines()[0] == f"Run {run_id}: failed, exit code 125: for the test"


@pytest.mark.parametrize("command", ["logs", "results"])
def test_without_any_run_that_is_said(command: str, remembered: Target) -> None:
    done = CliRunner().invoke(app, [command])
    assert str(done.exception) == "no run was started yet; start one with `gpuctl run FILE`"


def test_json_is_an_object_per_line(run_id: str) -> None:
    done = CliRunner().invoke(app, ["logs", run_id, "--rank", "1", "--json"])
    assert [json.loads(line) for line in done.stdout.splitlines()] == [
        {"time": 1.0, "rank": 1, "stream": "stdout", "text": "two"},
        {"time": 1.0, "rank": 1, "stream": "stdout", "text": "four"},
    ]
    assert done.stderr == ""


def test_prefixes_have_a_colour_where_it_is_wanted(
    run_id: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("FORCE_COLOR", "1")
    monkeypatch.delenv("NO_COLOR", raising=False)
    first = CliRunner().invoke(app, ["logs", run_id]).stdout.splitlines()[0]
    assert first == "\033[36m[0] \033[0mone"
    first = CliRunner().invoke(app, ["logs", run_id, "--no-color"]).stdout.splitlines()[0]
    assert first == "[0] one"


def test_ps_lists_the_newest_runs_alone(remembered: Target) -> None:
    with History(remembered.runs) as history:
        for number in range(3):
            history.begin(make_plan().model_copy(update={"run_id": f"job-{number}"}))
    done = CliRunner().invoke(app, ["ps", "-n", "2"])
    head, *rows = done.stdout.splitlines()
    assert head == "RUN    CLUSTER  NODES  STATUS   EXIT  COST  STARTED"
    assert [row.split()[:4] for row in rows] == [
        ["job-2", "demo", "2", "running"],
        ["job-1", "demo", "2", "running"],
    ]
    assert [
        run["run_id"] for run in json.loads(CliRunner().invoke(app, ["ps", "--json"]).stdout)
    ] == [
        "job-2",
        "job-1",
        "job-0",
    ]
