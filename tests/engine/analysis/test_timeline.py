"""The timeline of a run: spans of jobs, and what happened."""

from engine.analysis.report import Moment, Span, Timeline, timeline
from engine.contract.head_events import (
    NodeAnswersAgain,
    NodeLost,
    NodeUnreachable,
    OutputJudged,
    PoweringOff,
    RunFinished,
    RunNode,
    RunStarted,
)
from engine.contract.worker_events import (
    DiskFull,
    NodeExamined,
    NodeExited,
    NodeFact,
    NodeInterrupted,
    NodeReady,
    NodeStarted,
    NodeStopped,
    Output,
    RankStarted,
)

FACT = NodeFact(kind="memory", text="killed")
NODES = tuple(
    RunNode(rank=rank, name=f"node{rank}", private_ip="10.0.0.1", role="w") for rank in (0, 1)
)
STARTED = RunStarted(
    time=100, run_id="job-000001", name="job", cluster="demo", startup_order="any",
    stop_criteria="all-done", on_stop="keep", nodes=NODES,
)  # fmt: skip


def test_jobs_are_spans_and_everything_else_is_a_moment() -> None:
    found = timeline(
        [
            STARTED,
            NodeStarted(time=101, rank=0, pid=1),
            NodeStarted(time=102, rank=1, pid=1),
            NodeReady(time=103, rank=1),
            RankStarted(time=104, rank=1, process=8, size=16),
            Output(time=105, rank=0, stream="stdout", text="-"),
            OutputJudged(time=106, rank=0, level="fault", text="wrong data"),
            DiskFull(time=107, rank=1, text="/run is full"),
            NodeAnswersAgain(time=108, rank=1, silence_s=12.4),
            NodeInterrupted(time=109, rank=1, action="terminate", at="2026-11-20T08:22:00Z"),
            NodeExamined(time=110, rank=0, exit_code=137, is_own_end=True, facts=(FACT, FACT)),
            NodeExamined(time=110, rank=1, exit_code=1, is_own_end=True, facts=()),
            NodeExited(time=110, rank=0, exit_code=137, signal=9),
            NodeStopped(time=111, rank=1, reason="killed"),
            NodeLost(time=112, rank=1, reason="silent"),
            RunFinished(
                time=113, status="failed", exit_code=1, first_failed_rank=0, reason="wrong data"
            ),
            PoweringOff(time=114),
        ]
    )
    assert found.nodes == ("node0", "node1")
    assert found.spans == (
        Span(node="node0", start=1, end=10, outcome="job exited with 137, signal 9"),
        Span(node="node1", start=2, end=11, outcome="job stopped: killed"),
    )
    assert [(one.at, one.node, one.text) for one in found.moments] == [
        (0, "", "run started, startup any"),
        (1, "node0", "job started"),
        (2, "node1", "job started"),
        (3, "node1", "ready"),
        (4, "node1", "rank 8 of 16 started"),
        (6, "node0", "fault: wrong data"),
        (7, "node1", "/run is full"),
        (8, "node1", "answers again after 12 s"),
        (9, "node1", "AWS reclaims the spot instance at 2026-11-20T08:22:00Z"),
        (10, "node0", "killed; killed"),
        (10, "node0", "job exited with 137, signal 9"),
        (11, "node1", "job stopped: killed"),
        (12, "node1", "lost: silent"),
        (13, "", "run failed: wrong data"),
        (14, "", "nodes power off"),
    ]


def test_a_job_without_an_end_lasts_until_the_last_event() -> None:
    found = timeline(
        [
            STARTED,
            NodeStarted(time=101, rank=0, pid=1),
            NodeUnreachable(time=104, rank=1, reason="no answer"),
        ]
    )
    assert found.spans == (Span(node="node0", start=1, end=4, outcome="no end was reported"),)
    assert found.moments[-1] == Moment(at=4, node="node1", text="unreachable: no answer")
    assert timeline([]) == Timeline()


def test_words_without_details() -> None:
    found = timeline(
        [
            STARTED,
            NodeExited(time=101, rank=0, exit_code=0, signal=None),
            NodeStopped(time=102, rank=2),  # of no node that the run began with
            RunFinished(time=103, status="done", exit_code=0, first_failed_rank=None, reason=""),
        ]
    )
    assert [(one.node, one.text) for one in found.moments[1:]] == [
        ("node0", "job exited with 0"),
        ("node number 2", "job stopped"),
        ("", "run done"),
    ]
