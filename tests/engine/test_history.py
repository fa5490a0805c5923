"""What is known of runs after their fleets are gone."""

import sqlite3
from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.errors import InputError, RunError
from engine.events import RunFinished, RunStarted
from engine.history import History
from engine.nccl_tests import Row, Timing
from engine.record import Record, recorded_events
from engine.result import RunResult
from tests.engine.conftest import make_plan


def result(run_id: str) -> RunResult:
    return RunResult(
        run_id=run_id,
        status="failed",
        exit_code=7,
        first_failed_rank=1,
        first_failed_node="node1",
        reason="node1 exited with 7",
        last_lines=("bad",),
        started=datetime(2026, 11, 20, 19, 0, tzinfo=UTC),
        ended=datetime(2026, 11, 20, 19, 1, tzinfo=UTC),
    )


ROWS = tuple(
    Row(
        rank=0,
        size=size,
        count=2,
        dtype="float",
        redop="sum",
        root=-1,
        time_us=1.5,
        algbw=2.5,
        busbw=3.5,
        wrong=None,
        in_place=Timing(time_us=1, algbw=2, busbw=3, wrong=0),
    )
    for size in (8, 16, 32)
)


def test_a_run_from_begin_to_end(tmp_path: Path) -> None:
    plan = make_plan(on_stop="destroy")
    with History(tmp_path) as history:
        history.begin(plan)
        assert not history.find("job").is_over
        history.add_rows(plan.run_id, 0, ROWS[:2])
        history.add_rows(plan.run_id, 1, ROWS[1:])  # a second client saw row 1 too
        history.finish(result(plan.run_id))
        history.set_cost(plan.run_id, 1.25)
        history.finish(result(plan.run_id))
    with History(tmp_path) as history:
        record = history.find(plan.run_id)
        assert (record.status, record.exit_code, record.first_failed_rank) == ("failed", 7, 1)
        assert (record.nodes, record.on_stop, record.cost_usd) == (2, "destroy", 1.25)
        assert record.is_over
        assert history.rows(plan.run_id) == ROWS


def test_name_means_the_newest_run(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        for run_id in ("job-1", "job-2"):
            history.begin(make_plan().model_copy(update={"run_id": run_id}))
        assert history.find("job").run_id == "job-2"
        assert [run.run_id for run in history.runs()] == ["job-2", "job-1"]
        history.drop("job-2")
        with pytest.raises(InputError) as error:
            history.find("job-2")
    assert str(error.value) == "there is no run job-2; the newest are: job-1"


def test_a_lost_run_is_over(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        history.begin(make_plan())
        history.lose("job-000001", "the supervisor on node0 ended without a result")
        record = history.find("job")
    assert (record.status, record.exit_code) == ("failed", 125)


def test_newer_and_broken_databases_are_refused_in_one_line(tmp_path: Path) -> None:
    with sqlite3.connect(tmp_path / "runs.sqlite") as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(RunError) as error:
        History(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}/runs.sqlite has version 9, this gpuctl knows 1;"
        " use the newer gpuctl that wrote it"
    )
    (tmp_path / "runs.sqlite").write_bytes(b"not a database, surely" * 100)
    with pytest.raises(RunError, match="cannot be used: file is not a database"):
        History(tmp_path)


STARTED = RunStarted(
    time=1,
    run_id="job-1",
    name="job",
    cluster="demo",
    startup_order="any",
    stop_criteria="all-done",
    on_stop="keep",
    nodes=(),
)
FINISHED = RunFinished(time=2, status="done", exit_code=0, first_failed_rank=None, reason="")


def test_record_goes_on_where_it_was_torn(tmp_path: Path) -> None:
    first, last = STARTED.model_dump_json(), FINISHED.model_dump_json()
    record = Record(tmp_path, "job-1")
    record.append(first)
    record.close()
    path = tmp_path / "job-1" / "journal.jsonl"
    path.write_text(path.read_text() + last[:20])
    assert list(recorded_events(tmp_path, "job-1")) == [STARTED]
    again, beside = Record(tmp_path, "job-1"), Record(tmp_path, "job-1")
    assert again.offset == len(first) + 1
    for client in (again, beside):  # both follow, and write the same
        client.append(last)
        client.close()
    assert path.read_text() == f"{first}\n{last}\n"
    assert list(recorded_events(tmp_path, "job-1")) == [STARTED, FINISHED]
    assert path.stat().st_mode & 0o777 == 0o600


def test_events_of_a_newer_agent_are_passed_over(tmp_path: Path) -> None:
    record = Record(tmp_path, "job-1")
    for line in (STARTED.model_dump_json(), '{"kind": "novelty", "time": 1}', "[]", "{}"):
        record.append(line)
    record.close()
    assert list(recorded_events(tmp_path, "job-1")) == [STARTED]


def test_damaged_record_is_told_in_one_line(tmp_path: Path) -> None:
    record = Record(tmp_path, "job-1")
    record.append("{damaged")
    record.close()
    with pytest.raises(RunError, match=r"journal\.jsonl is damaged: .*; remove it; following"):
        list(recorded_events(tmp_path, "job-1"))


def test_unknown_run_has_no_events(tmp_path: Path) -> None:
    assert list(recorded_events(tmp_path, "job-9")) == []
