"""Runs of 512 nodes: the real supervisor in a process of its own, simulated nodes."""

import json
import signal
import time
from collections import Counter
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from benchmarks.floods import plan_of
from benchmarks.scale import FIRST_LINE, SimulatedRun, members_of, simulated_run
from benchmarks.scale_nodes import LINE
from engine.agent.journal.journal_file import JOURNAL
from engine.contract.verdict import NODE_FAILED

pytestmark = [pytest.mark.slow, pytest.mark.thorough]

NODES = 512
SILENCE_S = 10.0
BUSY_S = 12.0
"""With the silence more than head_silence_s: a node that gets no answer meanwhile ends its job."""


@pytest.fixture
def run() -> Iterator[SimulatedRun]:
    with simulated_run(replace(plan_of(NODES), stop_criteria="master-done")) as run:
        yield run


def recorded(run: SimulatedRun) -> list[dict[str, Any]]:
    lines = (run.folder / JOURNAL).read_bytes().splitlines()
    return [json.loads(line) for line in lines]


def ranks(events: list[dict[str, Any]], kind: str) -> list[int]:
    return sorted(event["rank"] for event in events if event["kind"] == kind)


def test_a_large_run_reports_silent_nodes_loses_killed_ones_and_leaves_no_process(
    run: SimulatedRun,
) -> None:
    supervisor = run.supervise()
    run.watch.lines(NODES, FIRST_LINE)
    run.watch.lines(NODES, LINE)
    silent, killed = range(NODES // 2, NODES), range(1, 1 + NODES // 100)
    run.say("silence", *silent)
    time.sleep(SILENCE_S)
    run.say("speak", *silent)
    run.watch.kind("node_answers_again", len(silent))
    run.say("die", *killed)
    run.watch.kind("run_finished")
    assert supervisor.wait() == 0
    events = recorded(run)
    for kind in ("node_prepared", "node_started", "node_ready", "node_gone"):
        assert ranks(events, kind) == list(range(NODES))
    assert ranks(events, "node_answers_again") == list(silent)
    assert ranks(events, "node_lost") == list(killed)
    others = [rank for rank in range(NODES) if rank not in killed]
    assert ranks(events, "node_stopped") == others
    first = next(event["rank"] for event in events if event["kind"] == "node_lost")
    end = events[-1]
    assert (end["kind"], end["status"], end["exit_code"]) == ("run_finished", "failed", NODE_FAILED)
    assert end["first_failed_rank"] == first
    assert end["reason"] == f"node{first} was lost: its worker ended with 0"
    assert members_of(supervisor.pid) == []


def test_no_job_ends_when_all_nodes_of_a_large_run_answer_again_after_a_pause(
    run: SimulatedRun,
) -> None:
    """Not even while the supervisor is too busy to read what they all say."""
    supervisor = run.supervise()
    run.watch.lines(NODES, FIRST_LINE)
    run.watch.lines(NODES, LINE)
    run.say("silence")
    time.sleep(SILENCE_S)
    supervisor.send_signal(signal.SIGSTOP)
    run.say("speak")
    time.sleep(BUSY_S)
    supervisor.send_signal(signal.SIGCONT)
    run.watch.lines(NODES, LINE, time.time())
    run.say("exit", 0)
    run.watch.kind("run_finished")
    events = recorded(run)
    kinds = Counter(event["kind"] for event in events)
    assert events[-1]["reason"] == "the master is done"
    assert (kinds["node_lost"], kinds["head_silent"], kinds["node_exited"]) == (0, 0, 1)
    assert kinds["node_answers_again"] == NODES
