"""Clocks that are set while a run goes on: noticed, and without an effect on times and limits."""

import asyncio
import time
from dataclasses import replace
from pathlib import Path

import pytest

from engine.agent.head.queue_wait import begin_fields
from engine.agent.journal import run_secrets_file
from engine.agent.journal.clock import RunClock, StepWatch, step_text
from engine.agent.journal.journal_file import JOURNAL
from engine.contract.head_events import RunStarted
from engine.contract.worker_events import ClockSet
from tests.engine.conftest import LocalCluster, make_plan

pytestmark = pytest.mark.slow


@pytest.fixture
def clock(monkeypatch: pytest.MonkeyPatch) -> list[float]:
    """The error of this process's clock in seconds."""
    wrong, now = [0.0], time.time
    monkeypatch.setattr(time, "time", lambda: now() + wrong[0])
    return wrong


def test_steps_are_noticed_and_the_clock_of_a_run_has_none(clock: list[float]) -> None:
    watch, of_run = StepWatch(), RunClock()
    began, times = time.time(), []
    found = []
    for wrong in (0, 0.9, -3600, -3600, 7200, 7200):
        clock[0] = wrong
        found.append(round(watch.look()))
        times.append(of_run.now())
    assert found == [0, 0, -3601, 0, 10800, 0]
    assert times == sorted(times)
    assert times[-1] - began < 60
    assert [step_text("node1", step) for step in (-3600.4, 61.0)] == [
        "node1's clock was set back by 3600 s",
        "node1's clock was set forward by 61 s",
    ]


def test_a_head_that_runs_no_job_is_named_too(cluster: LocalCluster, clock: list[float]) -> None:
    until = f"until grep -q clock_set {cluster.folder}/{JOURNAL}; do sleep 0.05; done"
    plan = replace(make_plan(nodes=1, commands=("echo runs", until)), head="node9")

    async def run() -> str:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        await cluster.printed(0, "runs")
        clock[0] = -86400
        return (await running).status

    assert asyncio.run(asyncio.wait_for(run(), 60)) == "done"
    (step,) = [event for event in cluster.events() if isinstance(event, ClockSet)]
    assert (step.rank, step.text) == (None, "node9's clock was set back by 86400 s")
    times = [event.time for event in cluster.events()]
    assert times[-1] - times[0] < 60


def test_limits_of_a_run_that_is_taken_up_do_not_depend_on_the_heads_clock(
    cluster: LocalCluster, clock: list[float]
) -> None:
    plan = make_plan(nodes=1, commands=("echo ends",), max_duration="1h", startup_timeout="1h")
    began = begin_fields(plan, cluster.journal)
    started = RunStarted(**began, startup_order="any", stop_criteria="all-done")
    cluster.journal.append(started)
    clock[0] = 7200
    cluster.journal.clock = RunClock()  # the next supervisor's
    assert cluster.execute(plan).status == "done"
    times = [event.time for event in cluster.events()]
    assert times == sorted(times)
    assert times[-1] - times[0] < 60


def test_a_run_holds_its_nodes_however_the_heads_clock_is_set(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, clock: list[float]
) -> None:
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    run_secrets_file.write_handover(tmp_path / "job-000001", b"{}")
    for wrong in (7200, -7200):
        clock[0] = wrong
        assert run_secrets_file.holds_nodes(tmp_path / "job-000001")
