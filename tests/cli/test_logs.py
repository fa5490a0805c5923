"""`gpuctl logs`: what a run printed, all of it or one rank's."""

import pytest
from typer.testing import CliRunner

from cli.main import app
from config.target import Target
from engine.events import NodeReady, Output
from engine.history import History
from engine.record import Record
from tests.engine.conftest import make_plan


@pytest.fixture
def run_id(remembered: Target) -> str:
    """A run of two nodes that is over."""
    plan = make_plan()
    with History(remembered.runs) as history:
        history.begin(plan)
        history.lose(plan.run_id, "for the test")
    record = Record(remembered.runs, plan.run_id)
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
