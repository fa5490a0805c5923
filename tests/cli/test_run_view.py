"""A run on the terminal, event by event."""

import contextlib
import io
import json
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Literal
from unittest import mock

import pytest
from hypothesis import given
from hypothesis import strategies as st

from cli.output import Output as Out
from cli.render.lines import LineView
from cli.render.run import RunView
from config.catalogue.instance_types import price_usd_h
from engine.agent.journal.lines import WholeLines
from engine.agent.judge.output_reader import OutputReader
from engine.contract.event import Event
from engine.contract.head_events import (
    CaseStarted,
    Evidence,
    GateJudged,
    GpusIdle,
    HangJudged,
    HeadUnreachable,
    NetworkSeen,
    NodeAnswersAgain,
    NodeGone,
    NodeLost,
    NodeUnreachable,
    RunFinished,
    TableRead,
)
from engine.contract.worker_events import NodeInterrupted, NodePrepared, Output, RankStarted
from engine.record.result import RunResult
from tests.engine.conftest import make_inventory, make_plan

NOTICE = NodeInterrupted(time=1795162145.0, rank=1, action="terminate", at="2026-11-20T08:11:01Z")


@pytest.mark.parametrize(
    ("nodes", "is_removed", "expected"),
    [
        (2, False, ["The run has cost about $10.98 at list price."]),  # a quarter of an hour
        (1, False, ["The run has cost about $5.49 at list price."]),
        (2, True, []),  # the removal prints what the cluster has cost
    ],
)
def test_a_run_on_a_kept_cluster_ends_with_its_cost(
    nodes: int, is_removed: bool, expected: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    start = datetime(2026, 11, 28, tzinfo=UTC)
    result = RunResult(
        run_id="job-000001", status="done", exit_code=0, first_failed_rank=None,
        first_failed_node=None, reason="", last_lines=(), started=start,
        ended=start + timedelta(minutes=15),
    )  # fmt: skip
    view = RunView(make_plan(nodes=nodes), Out(), make_inventory(2))
    view.next_steps(result, is_removed=is_removed)
    goes_on = (
        "Cluster demo goes on, and its nodes cost $43.92 per hour: `gpuctl down demo` removes it"
    )
    assert capsys.readouterr().out.splitlines() == [
        *expected,
        *([] if is_removed else [goes_on]),
        "Next: `gpuctl logs job-000001`, `gpuctl report job-000001`",
    ]
    as_json = RunView(make_plan(nodes=nodes), Out(as_json=True), make_inventory(2))
    as_json.end_json(result, None, None)
    assert json.loads(capsys.readouterr().out)["run_usd"] == pytest.approx(nodes * 21.957642 / 4)


@pytest.mark.parametrize(
    ("at", "when"),
    [
        ("2026-11-20T08:11:01Z", "08:11:01 UTC, in 1m 56s"),
        ("2026-11-20T08:09:00Z", "08:09:00 UTC, in 0s"),
        ("soon", "soon"),
    ],
)
def test_a_notice_says_which_node_what_when_and_what_follows(
    capsys: pytest.CaptureFixture[str], at: str, when: str
) -> None:
    RunView(make_plan(), Out()).event(replace(NOTICE, at=at))
    assert capsys.readouterr().out == (
        f"-- AWS takes node1's spot instance back: terminate at {when};"
        " the run fails then, unless it ends before\n"
    )


def test_a_notice_is_an_event_of_the_json_stream(capsys: pytest.CaptureFixture[str]) -> None:
    RunView(make_plan(), Out(as_json=True)).event(NOTICE)
    assert capsys.readouterr().err == (
        '{"kind":"node_interrupted","time":1795162145.0,"rank":1,"action":"terminate",'
        '"at":"2026-11-20T08:11:01Z"}\n'
    )


def test_what_the_head_reads_of_a_table_is_shown_at_the_end_alone(
    capsys: pytest.CaptureFixture[str],
) -> None:
    row = "8 2 float sum -1 45.82 0.10 0.20 0 38.17 0.30 0.40 0"
    _, read = OutputReader(make_plan()).read(Output(1, "stdout", row))
    assert isinstance(read, TableRead)
    for out in (Out(as_json=True), Out()):
        RunView(make_plan(), out).event(read)
        assert capsys.readouterr() == ("", "")


def shown(capsys: pytest.CaptureFixture[str], *events: Event, folds: bool = False) -> list[str]:
    view = RunView(make_plan(), Out(), folds=folds)
    for event in events:
        view.event(event)
    return capsys.readouterr().out.splitlines()


def started(rank: int, process: int, size: int = 4) -> RankStarted:
    return RankStarted(time=1.0, rank=rank, process=process, size=size)


def test_ranks_are_one_line_when_all_are_there(capsys: pytest.CaptureFixture[str]) -> None:
    assert shown(capsys, started(0, 0), started(1, 3), started(0, 1), started(0, 1)) == []
    four = (started(1, 2), started(0, 0), started(1, 3), started(0, 1))
    assert shown(capsys, *four) == ["-- all 4 ranks started, on node[0-1]"]
    assert shown(capsys, *four, *four) == ["-- all 4 ranks started, on node[0-1]"] * 2
    assert shown(capsys, started(0, 0, 1)) == ["-- the only rank started, on node0"]


def seen(rank: int, level: Literal["proof", "warning", "fault"], text: str) -> NetworkSeen:
    return NetworkSeen(time=1.0, rank=rank, level=level, text=text)


@pytest.mark.parametrize(
    ("left_s", "words"),
    [
        (None, ""),
        (0.2, ", about 1 s left"),
        (119.4, ", about 119 s left"),
        (239.0, ", about 4 min left"),
        (7199.0, ", about 120 min left"),
        (10000.0, ", about 3 h left"),
    ],
)
def test_a_case_that_starts_is_one_line(
    capsys: pytest.CaptureFixture[str], left_s: float | None, words: str
) -> None:
    text = "# gpuctl: case 3 of 24: all_gather 64 MiB"
    announced = Output(time=1.0, rank=0, stream="stdout", text=text)
    started = CaseStarted(time=1.0, number=3, of=24, title="all_gather 64 MiB", left_s=left_s)
    assert shown(capsys, announced, started) == [f"-- 3 of 24, all_gather 64 MiB{words}"]


FINISHED = RunFinished(
    time=2.0, status="done", exit_code=0, first_failed_rank=None, reason="all ended"
)


SILENCE = "has not answered for 15 s (last heard 12:03:44 UTC)"
HANG = "no node has printed a line for 300 s (hang): rank 3 (node1) has no process"
OUTAGE = HeadUnreachable(time=1.0, seconds=11.0, reason="node0: no answer")
GATE: dict[str, Any] = {"text": "gate …", "busbw": 1.0, "expected": 2.0, "source": "run file"}


@pytest.mark.parametrize(
    ("events", "lines"),
    [
        ([NodePrepared(1), NodeGone(1, "")], ["-- node1 prepared", "-- node1 gone"]),
        ([GateJudged(0, "proof", cases=(1,), **GATE)], ["-- gate …"]),
        ([GateJudged(0, "fault", cases=(1,), **GATE)], ["-- fault: gate …"]),
        (
            [seen(rank, "proof", f"node{rank} uses EFA: 4 interfaces") for rank in (0, 1)],
            ["-- network: node[0-1] uses EFA: 4 interfaces"],
        ),
        (
            [seen(1, "proof", "node1 uses EFA"), RunFinished("done", 0, None, "all ended")],
            ["-- network: node1 uses EFA", "-- run done: all ended"],
        ),
        ([seen(1, "warning", "node1 uses sockets")], ["-- network warning: node1 uses sockets"]),
        ([seen(1, "fault", "node1 uses sockets")], ["-- network fault: node1 uses sockets"]),
        ([NodeAnswersAgain(0, 8.4)], ["-- node0 answers again, after a silence of 8 s"]),
        (
            [NodeUnreachable(1, "ssh: Connection refused")],
            ["-- node1 cannot be reached: ssh: Connection refused"],
        ),
        (
            [NodeLost(1, SILENCE), Evidence(1, "node1", "ping", "much\ntext\n")],
            [f"-- node1 lost: {SILENCE}"],
        ),
        (
            [HangJudged(1, HANG, "report"), HangJudged(1, HANG, "stop")],
            [f"-- warning: {HANG}", f"-- fault: {HANG}"],
        ),
        (
            [OUTAGE, replace(OUTAGE, seconds=25.0), Output(0, "stdout", "step"), OUTAGE],
            [
                "-- the head has not answered for 11s: node0: no answer",
                "[node0] step",
                "-- the head has not answered for 11s: node0: no answer",
            ],
        ),
    ],
)
def test_what_happens_is_a_line(
    events: list[Event], lines: list[str], capsys: pytest.CaptureFixture[str]
) -> None:
    assert shown(capsys, *events) == lines


def test_idle_gpus_are_told_with_what_they_cost(capsys: pytest.CaptureFixture[str]) -> None:
    event = GpusIdle(time=1.0, rank=1, gpus=(0, 1, 2, 5), seconds=900)
    there = make_inventory(2).model_copy(update={"instance_type": "p4d.24xlarge"})
    price = price_usd_h("p4d.24xlarge")
    assert price is not None
    RunView(make_plan(), Out(), there).event(event)
    RunView(make_plan(), Out()).event(replace(event, gpus=(3,)))
    assert capsys.readouterr().out.splitlines() == [
        "-- warning: node1: GPUs 0-2,5 have been idle for 15m 00s, which cost about"
        f" ${price / 8:.2f}",
        "-- warning: node1: GPU 3 has been idle for 15m 00s",
    ]


def test_the_end_names_the_folder_with_the_evidence(capsys: pytest.CaptureFixture[str]) -> None:
    now = datetime(2026, 11, 20, tzinfo=UTC)
    how: dict[str, Any] = {"status": "failed", "exit_code": 125, "first_failed_rank": 1}
    how |= {"first_failed_node": "node1", "reason": "node1 cannot be reached: x", "last_lines": ()}
    result = RunResult(run_id="job-000001", started=now, ended=now, **how)
    view = RunView(make_plan(), Out())
    view.end(result, Path("/runs/job-000001/evidence"))
    assert capsys.readouterr().out.splitlines()[1:] == [
        "Run job-000001: failed in 0.0s, exit code 125: node1 cannot be reached: x",
        "Evidence: what was seen of the node is in /runs/job-000001/evidence",
    ]
    view.end(result, None)
    assert "Evidence" not in capsys.readouterr().out
    view = RunView(make_plan(), Out(as_json=True))
    view.end_json(result, None, Path("/runs/job-000001/evidence"))
    assert json.loads(capsys.readouterr().out)["evidence"] == "/runs/job-000001/evidence"


def line(rank: int, text: str, at: float = 1.0) -> Output:
    return Output(time=at, rank=rank, stream="stdout", text=text, ends_line=True, offset=0)


def test_equal_lines_are_folded_while_the_run_goes_on(capsys: pytest.CaptureFixture[str]) -> None:
    """They come before an event about them, and before the end of the run."""
    lost = NodeLost(time=3.0, rank=1, reason="was lost")
    done = RunFinished(
        time=9.0, status="failed", exit_code=125, first_failed_rank=1, reason="node1 was lost"
    )
    events = (line(0, "step 1"), line(1, "step 1"), line(1, "alone"), lost, line(0, "last"), done)
    assert shown(capsys, *events, folds=True) == [
        "node[0-1] step 1",
        "[node1] alone",
        "-- node1 lost: was lost",
        "[node0] last",
        "-- run failed: node1 was lost",
    ]
    assert shown(capsys, *events[:2]) == ["[node0] step 1", "[node1] step 1"]


LINES = st.lists(
    st.text(st.sampled_from("ab 1#\t\r\x1b[31m\x9bé\u202e"), max_size=6)
    | st.sampled_from(["# gpuctl: case 1 of 2: all_reduce", "step 1", "\x1b[31mred", ""]),
    min_size=1,
    max_size=6,
)


@given(st.lists(st.tuples(st.integers(0, 1), LINES, st.booleans()), max_size=6))
def test_many_lines_at_once_look_like_each_alone(events: list[tuple[int, list[str], bool]]) -> None:
    def printed() -> str:
        view = RunView(make_plan(), Out())
        with contextlib.redirect_stdout(io.StringIO()) as out:
            for rank, lines, ends in events:
                fields: dict[str, Any] = {"time": 1.0, "rank": rank, "stream": "stdout"}
                view.event(Output(**fields, text="\n".join(lines), ends_line=ends))
        return out.getvalue()

    at_once = printed()
    with mock.patch.object(LineView, "show_text", lambda *_: False):
        assert printed() == at_once


def test_many_lines_are_printed_at_once_and_not_one_by_one(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(WholeLines, "feed", lambda *_: pytest.fail("it split the lines"))
    text = "\n".join(f"step {i}" for i in range(1000))
    RunView(make_plan(), Out()).event(Output(time=1.0, rank=1, stream="stdout", text=text))
    assert capsys.readouterr().out == "".join(f"[node1] step {i}\n" for i in range(1000))
