"""Notifications of runs of real agents, to real servers and commands; failures and restarts."""

import asyncio
import json
import re
import subprocess
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.agent.head.run_state import journal_events
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.notify import lifetime
from engine.agent.notify.notification import SOCKET_S
from engine.agent.notify.notifier import Notifier, Tries
from engine.contract.head_events import (
    BudgetNearing,
    LeaseEnding,
    NotificationsEnded,
    Notified,
    RunFinished,
)
from engine.contract.plan import BudgetPlan, LaunchPlan
from engine.contract.worker_events import NodeInterrupted
from engine.plan.notify_plan import secret_names
from engine.record.result import ResultCollector
from provision.setup.lease.units import set_end
from tests.engine.bare_events import STARTED
from tests.engine.conftest import LocalCluster, make_plan
from tests.engine.webhooks import Hook, webhook
from tests.processes import wait_for_end

pytestmark = pytest.mark.slow

NO_TIMER = Path("/nonexistent")


TRIES = Tries(pauses_s=(0.01, 0.01))


@pytest.fixture
def hook() -> Iterator[Hook]:
    with webhook() as hook:
        yield hook


def plan_for(target: dict[str, Any], **fields: Any) -> LaunchPlan:
    return make_plan(nodes=1, notify=(target,), **fields)


def notifier_of(
    cluster: LocalCluster, plan: LaunchPlan, tries: Tries = TRIES, **secrets: str
) -> Notifier:
    agent = cluster.folder / "agent.pyz"
    assert secret_names(plan.notify) == set(secrets)
    return Notifier(plan, secrets, ["topsecret-job"], cluster.journal, agent, tries)


async def execute(
    cluster: LocalCluster,
    plan: LaunchPlan,
    tries: Tries = TRIES,
    timer: Path = NO_TIMER,
    **secrets: str,
) -> float:
    """Run the plan to its end with notifications; return the seconds from the run's end on."""
    notifications = notifier_of(cluster, plan, tries, **secrets)
    supervisor = cluster.supervisor(plan, see=notifications.see)
    supervisor.timer = timer
    notifications.begin()
    await supervisor.run()
    began = time.monotonic()
    await notifications.end()
    return time.monotonic() - began


def notified(cluster: LocalCluster) -> list[tuple[str, int, str]]:
    """Event, tries and error of every notification, in order of their ends."""
    return [
        (one.event, one.tries, one.error) for one in cluster.events() if isinstance(one, Notified)
    ]


def warnings(cluster: LocalCluster) -> tuple[str, ...]:
    collector = ResultCollector()
    for event in cluster.events():
        collector.see(event)
    result = collector.result()
    assert result is not None
    return result.warnings


def test_start_and_failure_reach_slacks_webhook(cluster: LocalCluster, hook: Hook) -> None:
    plan = plan_for(
        {"webhook": {"secret": "HOOK"}, "form": "slack"}, commands=("echo topsecret-job; exit 3",)
    )
    asyncio.run(execute(cluster, plan, HOOK=hook.url))
    who = "run job-000001 on cluster demo"
    first, last = (body["text"] for body in hook.bodies())
    assert first == f"{who} has started on 1 node"
    assert re.fullmatch(
        rf"{who} has failed after \d s with exit code 3: node0: exited with 3", last
    )
    assert notified(cluster) == [("start", 1, ""), ("failure", 1, "")]
    assert isinstance(cluster.events()[-1], NotificationsEnded)
    assert warnings(cluster) == ()


def test_a_server_s_error_is_tried_again(cluster: LocalCluster, hook: Hook) -> None:
    hook.answers = [(500, {}, b""), (503, {}, b"")]
    plan = plan_for({"webhook": {"secret": "HOOK"}, "on": ("end",)})
    asyncio.run(execute(cluster, plan, HOOK=hook.url))
    first, second, third = hook.bodies()
    assert first == second == third
    assert first["id"] == "job-000001/2"
    assert notified(cluster) == [("end", 3, "")]


@pytest.mark.parametrize(
    ("answer", "tries", "why"),
    [
        ((500, {}, b"/services/T0/B0/hidden"), 3, "3 tries: HTTP 500"),
        ((404, {}, b"no_service"), 1, "1 try: HTTP 404 (no_service)"),
    ],
)
def test_one_that_fails_is_a_warning_without_the_secret(
    cluster: LocalCluster, hook: Hook, answer: Any, tries: int, why: str
) -> None:
    hook.answers = 5 * [answer]
    plan = plan_for({"webhook": {"secret": "HOOK"}, "form": "slack", "on": ("start",)})
    asyncio.run(execute(cluster, plan, HOOK=hook.url))
    assert len(hook.requests) == tries
    assert warnings(cluster) == (f"notify[0] was not notified of 'start' after {why}",)
    finished = next(e for e in cluster.events() if isinstance(e, RunFinished))
    assert finished.status == "done"
    assert "hidden" not in (cluster.folder / JOURNAL).read_text()


def test_a_server_without_an_answer_holds_nothing_up(cluster: LocalCluster, hook: Hook) -> None:
    hook.answers = [None, None, None, None]
    plan = plan_for({"webhook": {"secret": "HOOK"}, "on": ("start", "end")})
    left = asyncio.run(execute(cluster, plan, tries=Tries(end_s=1.0), HOOK=hook.url))
    assert 0.9 < left < SOCKET_S, "less than one try"
    over = {"no answer; the run is over", f"no answer within {SOCKET_S:g} s; the run is over"}
    assert {error for _, _, error in notified(cluster)} <= over
    assert {event for event, _, _ in notified(cluster)} == {"start", "end"}


def test_a_try_has_a_bound(cluster: LocalCluster, tmp_path: Path) -> None:
    command = f"echo $$ >> {tmp_path}/pids; exec sleep 1000"
    plan = plan_for({"command": command, "on": ("start",)})
    asyncio.run(execute(cluster, plan, tries=replace(TRIES, try_s=1.5)))
    assert notified(cluster) == [("start", 3, "no end within 1.5 s")]
    pids = (tmp_path / "pids").read_text().split()
    assert len(pids) == 3
    for pid in pids:
        wait_for_end(int(pid))


def test_a_command_s_error_has_no_secret(cluster: LocalCluster, tmp_path: Path) -> None:
    command = f'cat >> {tmp_path}/got; echo "bad key $KEY" >&2; test $GPUCTL_EVENT = start'
    plan = plan_for({"command": command, "env": {"KEY": {"secret": "KEY"}}, "on": ("start", "end")})
    asyncio.run(execute(cluster, plan, KEY="topsecret-key"))
    assert sorted(notified(cluster)) == [("end", 3, "exit code 1: bad key ***"), ("start", 1, "")]
    got = (tmp_path / "got").read_text().replace("}{", "}\n{").splitlines()
    assert [json.loads(line)["event"] for line in got] == ["start", "end", "end", "end"]


def test_the_job_s_secrets_are_in_no_notification(cluster: LocalCluster, hook: Hook) -> None:
    plan = plan_for({"webhook": {"secret": "HOOK"}, "on": ("failure",)})
    notifications = notifier_of(cluster, plan, HOOK=hook.url)

    async def finish() -> None:
        notifications.begin()
        notifications.see(RunFinished("failed", 1, 0, "key topsecret-job is wrong"))
        await notifications.end()

    asyncio.run(finish())
    (body,) = hook.bodies()
    assert body["reason"] == "key *** is wrong"
    assert body["text"].endswith("with exit code 1: key *** is wrong")


def test_the_next_supervisor_sends_what_is_missing(cluster: LocalCluster, hook: Hook) -> None:
    plan = plan_for({"webhook": {"secret": "HOOK"}})
    journal = cluster.journal
    journal.append(STARTED)
    journal.append(Notified(1, 0, "start", tries=1))
    journal.append(NodeInterrupted(0, "terminate", "x"))
    journal.append(RunFinished("failed", 1, 0, "bad"))

    async def resume() -> None:
        notifications = notifier_of(cluster, plan, HOOK=hook.url)
        for _ in notifications.replay(journal_events(cluster.folder / JOURNAL)):
            pass  # the supervisor reads them
        notifications.begin()
        await notifications.end()

    asyncio.run(resume())
    ids = ["job-000001/2", "job-000001/3"]
    assert [body["id"] for body in hook.bodies()] == ids
    asyncio.run(resume())  # a third supervisor has nothing to send
    assert [body["id"] for body in hook.bodies()] == ids
    kinds = [event.kind for event in journal_events(cluster.folder / JOURNAL)]
    assert kinds.count("notifications_ended") == 1


def write_timer(path: Path, at: float) -> Path:
    text = time.strftime("%Y-%m-%d %H:%M:%S", time.gmtime(at))
    path.write_text(f"[Timer]\nOnCalendar={text} UTC\nPersistent=true\n")
    return path


def test_the_end_of_the_lifetime(cluster: LocalCluster, hook: Hook, tmp_path: Path) -> None:
    timer = write_timer(tmp_path / "timer", time.time() + 600)
    plan = plan_for({"webhook": {"secret": "HOOK"}, "on": ("lease",)})
    asyncio.run(execute(cluster, plan, timer=timer, HOOK=hook.url))
    (body,) = hook.bodies()
    assert body["event"] == "lease"
    assert "its nodes power off then, and the rest costs until `gpuctl down demo`" in body["text"]
    (line,) = [event for event in cluster.events() if isinstance(event, LeaseEnding)]
    assert line.at == lifetime.lifetime_end(timer)


def budgeted(spent_usd: float, **target: Any) -> LaunchPlan:
    """Return the plan of a run whose cluster costs $1 an hour, has a budget of $100, and so much of
    it spent."""
    since = time.time() - 3600 * spent_usd
    target = {"webhook": {"secret": "HOOK"}, "on": ("budget",), **target}
    return replace(plan_for(target), budget=BudgetPlan(100.0, 80.0, 1.0, since))


@pytest.mark.parametrize(("spent", "percent"), [(79.0, []), (80.0, ["80 %"]), (100.0, ["100 %"])])
def test_a_budget_is_reported_from_80_percent_on(
    cluster: LocalCluster, hook: Hook, spent: float, percent: list[str]
) -> None:
    asyncio.run(execute(cluster, budgeted(spent), HOOK=hook.url))
    texts = [body["text"] for body in hook.bodies()]
    assert [re.findall(r"\d+ %", text) for text in texts] == ([percent] if percent else [])
    kinds = [event.kind for event in cluster.events()]
    assert kinds.count("budget_nearing") == len(percent)


def test_a_budget_is_reported_while_the_run_goes_on(cluster: LocalCluster, hook: Hook) -> None:
    """The cluster passes 80 % half a second after the run has begun."""
    plan = budgeted(80.0 - 0.5 / 3600)
    notifications = notifier_of(cluster, plan, HOOK=hook.url)

    async def wait() -> None:
        notifications.begin()
        while not hook.requests:  # noqa: ASYNC110  another thread appends to it
            await asyncio.sleep(0.01)
        notifications.see(RunFinished("done", 0, None, ""))
        await notifications.end()

    asyncio.run(asyncio.wait_for(wait(), 30))
    (body,) = hook.bodies()
    assert (body["event"], body["spent_usd"], body["max_usd"]) == ("budget", 80.0, 100.0)


def test_a_budget_is_reported_once_although_the_supervisor_starts_again(
    cluster: LocalCluster, hook: Hook
) -> None:
    plan = budgeted(90.0)

    async def supervise(*, is_over: bool) -> None:
        notifications = notifier_of(cluster, plan, HOOK=hook.url)
        for _ in notifications.replay(journal_events(cluster.folder / JOURNAL)):
            pass  # the supervisor reads them
        notifications.begin()
        await asyncio.sleep(0.3)
        if is_over:
            notifications.see(cluster.journal.append(RunFinished("done", 0, None, "")))
        await notifications.end()

    cluster.journal.append(STARTED)
    for is_over in (False, False, True):
        asyncio.run(supervise(is_over=is_over))
    (event,) = (event for event in cluster.events() if isinstance(event, BudgetNearing))
    assert event.spent_usd == pytest.approx(90.0, abs=0.01)
    assert {body["id"] for body in hook.bodies()} == {"job-000001/2"}


def test_a_target_without_the_event_budget_has_none(cluster: LocalCluster, hook: Hook) -> None:
    asyncio.run(execute(cluster, budgeted(90.0, on=("end",)), HOOK=hook.url))
    assert [body["event"] for body in hook.bodies()] == ["end"]


def test_the_lifetime_is_watched(tmp_path: Path) -> None:
    """It is reported once it is near, again when it changes, and not if it was before."""
    now = time.time()
    timer = tmp_path / "timer"
    reports: list[float] = []

    async def watch(reported: float | None, *ends: float) -> None:
        watching = asyncio.ensure_future(
            lifetime.watch_end(lambda: lifetime.lifetime_end(timer), reports.append, reported, 0.01)
        )
        for end in ends:
            write_timer(timer, end)
            await asyncio.sleep(0.1)
        watching.cancel()

    near, later = float(int(now) + 600), float(int(now) + 700)
    asyncio.run(watch(None, now + 5000, near, now + 6000, later))
    assert reports == [near, later]
    asyncio.run(watch(later, later))
    assert reports == [near, later]


def test_the_end_is_reported_in_time_although_the_clock_is_set_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    now, wrong = time.time, [0.0]
    monkeypatch.setattr(time, "time", lambda: now() + wrong[0])
    timer = write_timer(tmp_path / "timer", time.time() + 6000)
    end = lifetime.lifetime_end(timer)
    assert end is not None
    notice_s = end - time.time() - 0.5

    async def watch() -> float:
        reported: asyncio.Future[float] = asyncio.get_running_loop().create_future()
        watching = asyncio.ensure_future(
            lifetime.watch_end(lambda: end, reported.set_result, None, 0.01, notice_s)
        )
        await asyncio.sleep(0)  # it has read the timer
        wrong[0] = -3600
        try:
            return await asyncio.wait_for(reported, 60)
        finally:
            watching.cancel()

    assert asyncio.run(watch()) == end


def test_the_timer_is_that_of_the_set_up(tmp_path: Path) -> None:
    script = set_end(5400)
    before = int(time.time())
    subprocess.run(
        [
            "bash",
            "-c",
            "systemctl() { :; }\n" + script.replace("/etc/systemd/system", str(tmp_path)),
        ],
        check=True,
    )
    end = lifetime.lifetime_end(tmp_path / lifetime.TIMER.name)
    assert end is not None
    assert before <= end - 5400 <= time.time()
    assert str(lifetime.TIMER) in script


@pytest.mark.parametrize("text", ["", "[Timer]\nOnBootSec=3\n", "OnCalendar=2026-11-23 10:00:00"])
def test_a_timer_without_a_known_time(tmp_path: Path, text: str) -> None:
    (tmp_path / "timer").write_text(text)
    assert lifetime.lifetime_end(tmp_path / "timer") is None
    assert lifetime.lifetime_end(tmp_path / "none") is None


def test_a_supervisor_that_crashes_leaves_it_to_the_next(cluster: LocalCluster, hook: Hook) -> None:
    hook.answers = [None]
    plan = plan_for({"webhook": {"secret": "HOOK"}, "on": ("start",)})

    async def crash() -> None:
        notifications = notifier_of(cluster, plan, HOOK=hook.url)
        notifications.begin()
        notifications.see(cluster.journal.append(STARTED))
        while not hook.requests:  # noqa: ASYNC110  another thread appends to it
            await asyncio.sleep(0.01)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        asyncio.run(crash())
    kinds = [event.kind for event in journal_events(cluster.folder / JOURNAL)]
    assert kinds == ["run_started"]
