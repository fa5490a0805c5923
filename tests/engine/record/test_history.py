"""What is known of runs after their fleets are gone."""

import math
import sqlite3
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import pytest

from config.errors import InputError, RunError
from config.run.run_file import NcclTests
from engine.contract.event import to_line
from engine.contract.head_events import FollowedFailure, GateJudged, RunFinished, RunStarted
from engine.contract.plan import Case
from engine.contract.table import Facts, GateVerdict, Row, Timing
from engine.plan.cases import list_cases
from engine.record.history import History, KeptFinding
from engine.record.journal_copy import JournalCopy, recorded_events
from engine.record.kept_results import KeptResults
from engine.record.result import RunResult, Table
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


def table(*sizes: int) -> Table:
    return Table(
        facts=Facts(rank=0, collective="all_reduce", flags={"checks": 1}, average_busbw=3.5),
        rows=tuple(
            Row(
                size=size,
                count=2,
                dtype="float",
                redop="sum",
                root=-1,
                out_of_place=Timing(time_us=1.5, algbw=2.5, busbw=3.5, wrong=None),
                in_place=Timing(time_us=1, algbw=2, busbw=3, wrong=0),
            )
            for size in sizes
        ),
    )


PROOF = KeptFinding(kind="network_seen", level="proof", rank=1, text="node1 uses EFA")


def test_a_run_from_begin_to_end(tmp_path: Path) -> None:
    plan = make_plan(on_stop="destroy")
    with History(tmp_path) as history:
        history.begin(plan)
        assert not history.find("job").is_over
        history.keep_table(plan.run_id, 0, table(8, 16))
        history.keep_table(plan.run_id, 0, table(16, 32), first=1)  # a second client saw 16 too
        history.keep_table(plan.run_id, 1, table(64))
        history.keep_finding(plan.run_id, 0, PROOF)
        history.keep_finding(plan.run_id, 0, PROOF)
        history.finish(result(plan.run_id))
        history.set_cost(plan.run_id, 1.25)
        history.finish(result(plan.run_id))
    with History(tmp_path) as history:
        record = history.find(plan.run_id)
        assert (record.status, record.exit_code, record.first_failed_rank) == ("failed", 7, 1)
        assert (record.nodes, record.on_stop, record.cost_usd) == (2, "destroy", 1.25)
        assert record.is_over
        assert history.tables(plan.run_id) == (table(8, 16, 32), table(64))
        assert history.findings(plan.run_id) == (PROOF,)
        history.drop(plan.run_id)
        assert history.tables(plan.run_id) == ()
        assert history.findings(plan.run_id) == ()


def test_a_table_keeps_its_case_and_verdicts(tmp_path: Path) -> None:
    (case, *_), gate = sweep_cases(), GateVerdict(passed=False, text="gate missed: …")
    facts = replace(table().facts, case=case, gates=(gate,))
    kept = table(8).model_copy(update={"facts": facts})
    with History(tmp_path) as history:
        history.begin(make_plan())
        history.keep_table("job-000001", 0, kept)
        assert history.tables("job-000001") == (kept,)


@pytest.mark.parametrize("figure", [math.inf, -math.inf, math.nan])
def test_a_figure_that_is_no_number_is_kept(tmp_path: Path, figure: float) -> None:
    given = table(8)
    half = Timing(figure, figure, figure, 0, figure, (figure,))
    given = given.model_copy(
        update={"rows": (replace(given.rows[0], out_of_place=half, in_place=None),)}
    )
    with History(tmp_path) as history:
        history.begin(make_plan())
        history.keep_table("job-000001", 0, given)
        (kept,) = history.tables("job-000001")
    assert repr(kept.rows) == repr(given.rows)


def verdict(level: Literal["proof", "fault"]) -> GateJudged:
    fields: dict[str, Any] = {"cases": (1,), "busbw": 1.0, "expected": 2.0, "source": "run file"}
    return GateJudged(time=1, rank=0, level=level, text=f"gate, {level}", **fields)


def test_missed_gates_are_findings_and_reached_ones_are_not(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        history.begin(make_plan())
        results = KeptResults("job-000001")
        results.see(verdict("proof"), history)
        results.see(verdict("fault"), history)
        missed = KeptFinding(kind="gate_judged", level="fault", rank=0, text="gate, fault")
        assert history.findings("job-000001") == (missed,)


def sweep_cases() -> tuple[Case, ...]:
    run = NcclTests(
        type="nccl-tests", name="x", sizes=("64M",), scopes=("intra",), sweep={"A": ("1", "2")}
    )
    return list_cases(run, ["node0"])


def test_name_means_the_newest_run(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        for run_id in ("job-000001", "job-000002"):
            history.begin(replace(make_plan(), run_id=run_id))
        assert history.find("job").run_id == "job-000002"
        assert [run.run_id for run in history.runs()] == ["job-000002", "job-000001"]
        history.drop("job-000002")
        with pytest.raises(InputError) as error:
            history.find("job-000002")
    assert str(error.value) == "there is no run job-000002; the newest are: job-000001"


def test_a_lost_run_is_over(tmp_path: Path) -> None:
    with History(tmp_path) as history:
        history.begin(make_plan(), head_id="i-1")
        assert history.find("job-000001").head_id == "i-1"
        history.mark_lost("job-000001", "the supervisor on node0 ended without a result")
        record = history.find("job")
    assert (record.status, record.exit_code) == ("failed", 125)


def test_database_of_another_version_and_broken_one_are_refused(
    tmp_path: Path,
) -> None:
    with sqlite3.connect(tmp_path / "runs.sqlite") as database:
        database.execute("PRAGMA user_version = 9")
    database.close()
    with pytest.raises(RunError) as error:
        History(tmp_path)
    assert str(error.value) == (
        f"{tmp_path}/runs.sqlite has version 9, this gpuctl reads 6; use the gpuctl that wrote it,"
        " or move the file away for a new history"
    )
    (tmp_path / "runs.sqlite").write_bytes(b"not a database, surely" * 100)
    with pytest.raises(RunError, match="cannot be used: file is not a database"):
        History(tmp_path)


STARTED = RunStarted(
    time=1,
    run_id="job-000001",
    name="job",
    cluster="demo",
    startup_order="any",
    stop_criteria="all-done",
    on_stop="keep",
    nodes=(),
)
FINISHED = RunFinished(time=2, status="done", exit_code=0, first_failed_rank=None, reason="")


def test_record_goes_on_where_it_was_torn(tmp_path: Path) -> None:
    first, last = to_line(STARTED), to_line(FINISHED)
    record = JournalCopy(tmp_path, "job-000001")
    record.append(first)
    record.close()
    path = tmp_path / "job-000001" / "journal.jsonl"
    path.write_text(path.read_text() + last[:20])
    assert list(recorded_events(tmp_path, "job-000001")) == [STARTED]
    again, beside = JournalCopy(tmp_path, "job-000001"), JournalCopy(tmp_path, "job-000001")
    assert again.offset == len(first) + 1
    for client in (again, beside):  # both follow, and write the same
        client.append(last)
        client.close()
    assert path.read_text() == f"{first}\n{last}\n"
    assert list(recorded_events(tmp_path, "job-000001")) == [STARTED, FINISHED]
    assert path.stat().st_mode & 0o777 == 0o600


def test_events_of_a_newer_agent_are_passed_over(tmp_path: Path) -> None:
    record = JournalCopy(tmp_path, "job-000001")
    for line in (to_line(STARTED), '{"kind": "novelty", "time": 1}', "[]", "{}"):
        record.append(line)
    record.close()
    assert list(recorded_events(tmp_path, "job-000001")) == [STARTED]


def test_damaged_record_is_told_in_one_line(tmp_path: Path) -> None:
    record = JournalCopy(tmp_path, "job-000001")
    record.append("{damaged")
    record.close()
    with pytest.raises(
        RunError,
        match=r"journal\.jsonl is damaged: .*; remove the file; `gpuctl logs job-000001 -f`",
    ):
        list(recorded_events(tmp_path, "job-000001"))


def test_unknown_run_has_no_events(tmp_path: Path) -> None:
    assert list(recorded_events(tmp_path, "job-000009")) == []


def test_attempts_and_failures_after_the_first_are_kept(tmp_path: Path) -> None:
    followed = (FollowedFailure(nodes=("node1", "node2"), text="exited with 1"),)
    with History(tmp_path) as history:
        history.begin(make_plan())
        assert (history.find("job-000001").attempts, history.find("job-000001").followed) == (1, ())
        history.mark_attempt("job-000001", 2)
        assert history.find("job-000001").attempts == 2
        ended = result("job-000001").model_copy(update={"attempts": 3, "followed": followed})
        history.finish(ended)
        assert (history.find("job-000001").attempts, history.find("job-000001").followed) == (
            3,
            followed,
        )
