"""Notifications as a client sees them: attached, detached, in the queue, before a cluster ends."""

import asyncio
import functools
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from engine.contract.codec import to_json
from engine.contract.event import Event
from engine.record.history import History
from engine.record.journal_copy import recorded_events
from engine.record.result import RunResult
from engine.session import session
from engine.session.cluster_runs import drop_run
from engine.session.following import Following
from tests.engine.session.test_session import (
    INVENTORY,
    LocalConnections,
    connections,  # noqa: F401  a fixture
    job,
)
from tests.engine.webhooks import Hook, webhook

pytestmark = pytest.mark.slow

TARGET = {"webhook": {"secret": "HOOK"}, "on": ("start", "end")}


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook() as hook:
        yield hook


def test_a_client_that_follows_gets_the_warning_about_the_end(
    connections: LocalConnections,  # noqa: F811
    hook: Hook,
    tmp_path: Path,
) -> None:
    hook.answers = [(200, {}, b""), (404, {}, b"")]
    plan = job("true", notify=(TARGET,))
    events: list[Event] = []
    secrets = {"HOOK": hook.url}
    result = asyncio.run(session.run(plan, INVENTORY, tmp_path, events.append, secrets))
    warning = "notify[0] was not notified of 'end' after 1 try: HTTP 404"
    assert (result.status, result.warnings) == ("done", (warning,))
    assert [event.kind for event in events][-3:] == [
        *("run_finished", "notified", "notifications_ended"),
    ]
    assert list(recorded_events(tmp_path, plan.run_id)) == events
    with History(tmp_path) as history:
        kept = [(one.kind, one.level, one.text) for one in history.findings(plan.run_id)]
    assert kept == [("notified", "warning", warning)]
    assert [body["event"] for body in hook.bodies()] == ["start", "end"]
    again = asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, lambda _: None))
    assert again.warnings == (warning,)
    for folder in (tmp_path, connections.run_folder(plan.run_id)):
        for path in folder.rglob("*"):
            assert not path.is_file() or b"/services/" not in path.read_bytes()


@pytest.mark.usefixtures("connections")
def test_the_end_arrives_with_nobody_attached(hook: Hook, tmp_path: Path) -> None:
    plan = job("exit 4", notify=({**TARGET, "on": ("failure",)},))

    async def leave_it_alone() -> None:
        await session.start(plan, INVENTORY, tmp_path, {"HOOK": hook.url})
        for _ in range(400):
            if hook.requests:
                return
            await asyncio.sleep(0.05)

    asyncio.run(leave_it_alone())
    (body,) = hook.bodies()
    assert (body["event"], body["run_id"], body["exit_code"]) == ("failure", plan.run_id, 4)
    # The supervisor ends: the cluster is free.
    asyncio.run(session.follow(plan.run_id, INVENTORY, tmp_path, lambda _: None))


@pytest.mark.usefixtures("connections")
def test_a_run_in_the_queue_starts_or_leaves_it(hook: Hook, tmp_path: Path) -> None:
    async def both() -> None:
        began = asyncio.Event()
        first = job("sleep 1000")
        running = asyncio.ensure_future(
            session.run(first, INVENTORY, tmp_path, lambda _: began.set())
        )
        await began.wait()
        plans = [job("true", notify=(TARGET,)) for _ in range(2)]
        secrets = {"HOOK": hook.url}
        tasks = []
        for plan in plans:
            is_queued = asyncio.Event()
            there = replace(plan, queue=True)
            see = functools.partial(hear, is_queued)
            life = session.run(there, INVENTORY, tmp_path, see, secrets)
            tasks.append(asyncio.create_task(life))
            await is_queued.wait()
        await drop_run(plans[1].run_id, INVENTORY)
        assert (await tasks[1]).status == "stopped"
        await session.stop(first.run_id, INVENTORY, tmp_path)
        await asyncio.gather(running, tasks[0])
        texts = [body["text"].partition(" on cluster demo ")[2] for body in hook.bodies()]
        left, started, ended = texts
        assert left == "was stopped: dropped from the queue"
        assert started.startswith("has started on 2 nodes, after ")
        assert started.endswith(" s in the queue")
        assert ended.startswith("is done after ")

    asyncio.run(both())


def test_a_client_destroys_the_cluster_after_the_last_notification(tmp_path: Path) -> None:
    """It does not wait for the supervisor's end, which waits for the client."""
    plan = job("true", notify=(TARGET,), on_stop="destroy")
    nodes = [
        {k: n[k] for k in ("rank", "name", "private_ip", "role")} for n in to_json(plan)["nodes"]
    ]
    begin = {"run_id": plan.run_id, "name": "job", "cluster": "demo", "on_stop": "destroy"}
    order: dict[str, Any] = {"startup_order": "any", "stop_criteria": "all-done", "notifies": True}
    end = {"status": "done", "exit_code": 0, "first_failed_rank": None, "reason": ""}
    sent = {"number": 2, "target": 0, "event": "end", "tries": 3, "error": "HTTP 500"}
    lines = [
        {"kind": "run_started", **begin, **order, "nodes": nodes},
        {"kind": "run_finished", **end},
        {"kind": "notified", **sent},
        {"kind": "notifications_ended"},
    ]

    async def read() -> AsyncIterator[str]:
        for line in lines:
            yield json.dumps({"time": 1.0, **line})
        await asyncio.Event().wait()

    @asynccontextmanager
    async def journal(_: int) -> AsyncIterator[Any]:
        yield read()

    head: Any = SimpleNamespace(
        journal=journal, node=INVENTORY.nodes[0], inventory=INVENTORY, start_requested=False
    )

    async def follow() -> RunResult:
        one = Following(head, plan.run_id, tmp_path, lambda _: None)
        return await asyncio.wait_for(one.follow(), 60)

    with History(tmp_path) as history:
        history.begin(plan, None)
    assert asyncio.run(follow()).warnings == (
        "notify[0] was not notified of 'end' after 3 tries: HTTP 500",
    )


def hear(event: asyncio.Event, _: Event) -> None:
    event.set()
