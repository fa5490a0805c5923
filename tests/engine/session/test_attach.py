"""Clients that leave a run and come back to it; the agents are real, the nodes are this machine."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.errors import Interrupted
from engine.contract.codec import from_json
from engine.contract.event import Event
from engine.contract.head_events import RunFinished, RunStarted
from engine.contract.plan import LaunchPlan
from engine.record.history import History
from engine.record.journal_copy import recorded_events
from engine.record.result import RunResult
from engine.record.run_errors import Detached
from engine.session import session
from engine.session.head import find_run
from engine.session.session import Answer
from tests.engine.session.test_session import (
    INVENTORY,
    connections,  # noqa: F401  a fixture
    job,
    text,
)

pytestmark = [pytest.mark.slow, pytest.mark.usefixtures("connections")]


async def interrupted(plan: LaunchPlan, runs: Path, answer: Answer) -> RunResult:
    """Run the plan, press Ctrl-C after its first output, and answer."""
    printed = asyncio.Event()

    def see(event: Event) -> None:
        if event.kind == "output":
            printed.set()

    life = session.run(plan, INVENTORY, runs, see, on_interrupt=lambda: answer)
    running = asyncio.ensure_future(life)
    await printed.wait()
    running.cancel()
    return await running


def status(runs: Path, plan: LaunchPlan) -> str:
    with History(runs) as history:
        return history.find(plan.run_id).status


def test_a_client_detaches_and_another_sees_every_line_once(tmp_path: Path) -> None:
    go = tmp_path / "go"
    plan = job(f"seq 1 99; until test -e {go}; do sleep 0.1; done; seq 100 200; exit 3")
    with pytest.raises(Detached) as left:
        asyncio.run(interrupted(plan, tmp_path, "detach"))
    assert str(left.value) == (
        f"run {plan.run_id} goes on without this client: detached;"
        f" `gpuctl attach {plan.run_id}` follows it, `gpuctl stop {plan.run_id}` ends it"
    )
    assert status(tmp_path, plan) == "running"
    go.touch()
    events: list[Event] = []
    result = asyncio.run(session.attach(plan, INVENTORY, tmp_path, events.append, lambda: "detach"))
    assert (result.status, result.exit_code) == ("failed", 3)
    whole = [str(n) for n in range(1, 201)]
    assert whole in (text(events, 0), text(events, 1))  # the one that failed first
    assert list(recorded_events(tmp_path, plan.run_id)) == events


def test_abort_stops_the_run_and_does_not_wait(tmp_path: Path) -> None:
    ended = tmp_path / "ended"
    until = f"until test -e {ended}; do sleep 0.1; done"  # the job outlives the client
    plan = job(f"trap '{until}' TERM; echo runs; sleep 1000 & wait")
    with pytest.raises(Interrupted) as left:
        asyncio.run(interrupted(plan, tmp_path, "abort"))
    assert str(left.value) == (
        f"run {plan.run_id} was asked to stop, and gpuctl does not wait for its end;"
        f" `gpuctl wait {plan.run_id}` does"
    )
    assert status(tmp_path, plan) == "running"
    ended.touch()
    result = asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, lambda _: None))
    assert (result.status, result.exit_code) == ("stopped", 130)


def test_a_run_that_is_started_and_left_alone(tmp_path: Path) -> None:
    plan = job("echo runs; exit 7")
    asyncio.run(session.start(plan, INVENTORY, tmp_path))
    assert status(tmp_path, plan) == "running"
    assert not (tmp_path / plan.run_id).exists(), "nobody follows it"
    events: list[Event] = []
    result = asyncio.run(session.attach(plan, INVENTORY, tmp_path, events.append, lambda: "stop"))
    assert result.exit_code == 7
    assert isinstance(events[0], RunStarted)
    assert isinstance(events[-1], RunFinished)


def test_ctrl_c_while_a_run_starts_aborts_it(tmp_path: Path) -> None:
    plan = job("sleep 1000")

    async def leave() -> None:
        starting = asyncio.ensure_future(session.start(plan, INVENTORY, tmp_path))
        await asyncio.sleep(0)  # it has begun
        starting.cancel()
        await starting

    with pytest.raises(Interrupted, match="was asked to stop"):
        asyncio.run(leave())
    result = asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, lambda _: None))
    assert result.status == "stopped"


def test_the_head_knows_runs_by_id_and_the_newest_by_name(tmp_path: Path) -> None:
    assert asyncio.run(find_run(INVENTORY, "job")) is None, "no run was here yet"
    plans = [job("true", outputs=("checkpoints/",)) for _ in range(2)]
    for plan in plans:
        asyncio.run(session.run(plan, INVENTORY, tmp_path, lambda _: None))
    found = [asyncio.run(find_run(INVENTORY, plan.run_id)) for plan in plans]
    assert [run.run_id for run in found if run] == [plan.run_id for plan in plans]
    assert asyncio.run(find_run(INVENTORY, "job")) == found[1]
    assert asyncio.run(find_run(INVENTORY, "jo")) is None
    assert found[0] is not None
    assert found[0].outputs == plans[0].outputs == ("checkpoints/",)


def test_a_client_comes_back_to_a_run_that_waits(tmp_path: Path) -> None:
    """Another machine finds it on the head, and what it does at its end."""
    go = tmp_path / "go"
    first = job(f"until test -e {go}; do sleep 0.1; done")
    asyncio.run(session.start(first, INVENTORY, tmp_path))
    waits = replace(job("echo mine", outputs=("checkpoints/",)), queue=True)
    asyncio.run(session.start(waits, INVENTORY, tmp_path))
    begun = asyncio.run(session.first_event(waits.run_id, INVENTORY, tmp_path))
    assert begun.kind == "run_queued"
    assert begun == asyncio.run(find_run(INVENTORY, waits.run_id))
    assert (begun.outputs, [node.name for node in begun.nodes]) == (
        waits.outputs,
        ["node0", "node1"],
    )
    there = tmp_path / "another"
    with History(there) as history:
        history.begin(begun)
    assert status(there, waits) == "queued"
    events: list[Event] = []

    def see(event: Event) -> None:
        events.append(event)
        go.touch()

    result = asyncio.run(session.attach(begun, INVENTORY, there, see, lambda: "detach"))
    assert [event.kind for event in events[:2]] == ["run_queued", "run_started"]
    assert result.status == status(there, waits) == "done"
    ended = asyncio.run(session.follow(first.run_id, INVENTORY, tmp_path, lambda _: None))
    assert ended.status == "done"


def test_a_run_of_another_machine_is_added_to_the_history(tmp_path: Path) -> None:
    plan = job("true")
    node = {"rank": 0, "name": "node0", "private_ip": "10.213.1.10", "role": "master"}
    started = from_json(
        RunStarted,
        {
            **{"time": 60.0, "run_id": plan.run_id, "name": "job", "cluster": "demo"},
            **{"startup_order": "any", "stop_criteria": "all-done", "on_stop": "destroy"},
            "nodes": [node],
        },
    )
    with History(tmp_path) as history:
        history.begin(started)
        history.begin(plan)
        record = history.find("job")
        assert history.setting(plan.run_id) is None
    assert (record.nodes, record.on_stop, record.status) == (1, "destroy", "running")
    assert record.started == datetime.fromtimestamp(60, UTC)
