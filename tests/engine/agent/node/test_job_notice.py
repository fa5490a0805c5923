"""A job hears that it must end soon: by a file, a signal to its ranks, and a command."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from dataclasses import replace
from pathlib import Path
from subprocess import PIPE

import pytest

from engine.agent.head.supervisor import Supervisor
from engine.agent.node.container import Host
from engine.agent.node.job_notice import FILE, JobNotice, notice_order, ranks_with_handler
from engine.contract.head_events import AttemptStarted, LeaseEnding
from engine.contract.node_plan import NoticePlan
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NodeInterrupted, NoticeGiven
from tests.engine.agent.node.test_interruption import TIME, Service, marked
from tests.engine.agent.notify.test_notifier import write_timer
from tests.engine.conftest import LocalCluster, make_plan

pytestmark = pytest.mark.slow

SAVES = """python3 -c '
import json, os, signal, sys
def save(*_):
    notice = json.load(open(os.environ["GPUCTL_NOTICE_FILE"]))
    print("saves", notice["kind"], notice["node"], flush=True)
    sys.exit(CODE)
signal.signal(signal.SIGUSR1, save)
print("ready", os.path.exists(os.environ["GPUCTL_NOTICE_FILE"]), flush=True)
while True:
    signal.pause()
'"""
"""A job that saves at the signal, and ends with CODE."""
SIGNAL = {"signal": "USR1"}


def saves(code: int) -> str:
    return SAVES.replace("CODE", str(code))


def stop_with_notice(
    cluster: LocalCluster, plan: LaunchPlan, notice_s: float, *ready: str
) -> Verdict:
    """Run the plan; stop it with notice once each rank has printed its text."""

    async def run() -> Verdict:
        supervisor = cluster.supervisor(plan)
        running = asyncio.ensure_future(supervisor.run())
        for rank, text in enumerate(ready):
            await cluster.printed(rank, text)
        supervisor.stop(notice_s)
        return await running

    return asyncio.run(run())


def given(cluster: LocalCluster) -> list[NoticeGiven]:
    return [event for event in cluster.events() if isinstance(event, NoticeGiven)]


def test_a_stop_with_notice_lets_each_rank_save(cluster: LocalCluster) -> None:
    plan = make_plan(commands=(saves(0),), on_notice=SIGNAL)
    began = time.time()
    verdict = stop_with_notice(cluster, plan, 300, "ready False", "ready False")
    assert (verdict.status, verdict.exit_code) == ("stopped", 130)
    assert verdict.reason == "stopped on request"
    assert cluster.output(0) == cluster.output(1) == "ready False\nsaves stop None\n"
    (notice,) = given(cluster)
    assert (notice.rank, notice.notice) == (None, "stop")
    assert notice.deadline is not None
    assert 300 <= notice.deadline - began < 400
    assert notice.text.endswith(" UTC, in 5 min")


def test_a_job_that_fails_after_the_notice_of_a_stop_is_not_started_again(
    cluster: LocalCluster,
) -> None:
    plan = make_plan(nodes=1, commands=(saves(3),), on_notice=SIGNAL, retry={"attempts": 3})
    verdict = stop_with_notice(cluster, plan, 300, "ready")
    assert (verdict.status, verdict.exit_code) == ("stopped", 130)
    assert not [event for event in cluster.events() if isinstance(event, AttemptStarted)]


def test_a_job_without_a_handler_goes_on_until_the_stop(cluster: LocalCluster) -> None:
    file = "$GPUCTL_NOTICE_FILE"
    wait = f"until test -e {file}; do sleep 0.1; done; cat {file}; sleep 0.5; echo goes on"
    command = f"trap 'echo term; exit' TERM; echo ready; {wait}; sleep 1000 & wait"
    plan = make_plan(nodes=1, commands=(command,), on_notice=SIGNAL)
    verdict = stop_with_notice(cluster, plan, 4, "ready")
    assert verdict.status == "stopped"
    ready, notice, *rest = cluster.output(0).splitlines()
    assert (ready, rest) == ("ready", ["goes on", "term"])
    (event,) = given(cluster)
    assert json.loads(notice) == {"kind": "stop", "deadline": event.deadline, "node": None}


def test_the_command_has_its_output_in_the_log_and_ends_at_the_deadline(
    cluster: LocalCluster,
) -> None:
    shown = 'echo "$GPUCTL_NOTICE_KIND ${GPUCTL_NOTICE_DEADLINE%.*}"'
    command = f"{shown}; cat $GPUCTL_NOTICE_FILE; exec sleep 1000"
    plan = make_plan(nodes=1, commands=("echo ready; sleep 1000",), on_notice={"command": command})
    assert stop_with_notice(cluster, plan, 2, "ready").status == "stopped"
    (event,) = given(cluster)
    assert event.deadline is not None
    ready, variables, notice, last = cluster.output(0).splitlines()
    assert (ready, variables) == ("ready", f"stop {int(event.deadline)}")
    assert json.loads(notice)["kind"] == "stop"
    assert last == "gpuctl: on_notice.command was killed"


def test_the_end_of_a_job_waits_for_the_command(cluster: LocalCluster) -> None:
    command = "sleep 1; echo copied; exit 3"
    plan = make_plan(nodes=1, commands=(saves(0),), on_notice={**SIGNAL, "command": command})
    assert stop_with_notice(cluster, plan, 300, "ready").status == "stopped"
    assert cluster.output(0).splitlines() == [
        "ready False",
        "saves stop None",
        "copied",
        "gpuctl: on_notice.command ended with 3",
    ]


def test_the_file_may_be_elsewhere(cluster: LocalCluster) -> None:
    file = cluster.folder / "shared" / "notice"
    plan = make_plan(nodes=1, commands=(saves(0),), on_notice={**SIGNAL, "file": str(file)})
    stop_with_notice(cluster, plan, 300, "ready False")
    assert cluster.output(0) == "ready False\nsaves stop None\n"
    assert json.loads(file.read_text())["kind"] == "stop"


def test_a_file_that_cannot_be_written_is_in_the_log(cluster: LocalCluster) -> None:
    (cluster.folder / "taken").touch()
    notice = {"file": f"{cluster.folder}/taken/notice"}
    plan = make_plan(nodes=1, commands=("echo ready; sleep 1000",), on_notice=notice)
    stop_with_notice(cluster, plan, 2, "ready")
    assert "gpuctl: GPUCTL_NOTICE_FILE cannot be written: mkdir: " in cluster.output(0)


def test_every_node_hears_of_one_nodes_interruption(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    service = Service()
    monkeypatch.setenv("AWS_EC2_METADATA_SERVICE_ENDPOINT", f"http://{service.address}/")
    plan = replace(make_plan(commands=(saves(0),), on_notice=SIGNAL), is_spot=True)

    async def run() -> Verdict:
        running = asyncio.ensure_future(cluster.supervisor(plan).run())
        for rank in range(2):
            await cluster.printed(rank, "ready False")
        service.answers = [marked()]  # to the node that asks first
        return await running

    verdict = asyncio.run(run())
    (event,) = [event for event in cluster.events() if isinstance(event, NodeInterrupted)]
    assert event.at == TIME
    text = f"ready False\nsaves spot-interruption node{event.rank}\n"
    assert cluster.output(0) == cluster.output(1) == text
    assert verdict.status == "done"  # a job that exits with 0 says so


def test_a_job_hears_of_the_end_of_lifetime_and_capacity_block(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    end = float(int(time.time()) + 600)
    monkeypatch.setattr(Supervisor, "timer", write_timer(cluster.folder / "timer", end))
    show = "cat $GPUCTL_NOTICE_FILE"
    wait = "until grep -q capacity $GPUCTL_NOTICE_FILE; do sleep 0.1; done"
    plan = make_plan(nodes=1, commands=(f"{wait} 2> /dev/null; {show}",))
    plan = replace(plan, ends_at=end - 60)
    assert cluster.execute(plan).status == "done"
    (lease,) = [event for event in cluster.events() if isinstance(event, LeaseEnding)]
    (block,) = given(cluster)
    assert (lease.at, block.notice, block.deadline) == (end, "capacity-block", end - 60)
    notice = {"kind": "capacity-block", "deadline": end - 60, "node": None}
    assert json.loads(cluster.output(0)) == notice


SLOW_CAT = """#!/bin/bash
for _ in {1..20}; do test -e "$NOTICE" && break; sleep 0.05; done
exec /bin/cat
"""
"""A file system that takes a second to write, or until somebody else has written the notice."""


@pytest.mark.parametrize(
    ("deadlines", "last"),
    [
        ([600.0, 540.0], 540.0),
        ([540.0, 600.0], 540.0),
        ([None, 600.0, 540.0], 540.0),
        ([600.0, 540.0, None], 540.0),
        ([None, None], None),
    ],
)
def test_the_file_has_the_most_urgent_of_notices_at_once(
    tmp_path: Path, deadlines: list[float | None], last: float | None
) -> None:
    (tmp_path / "bin").mkdir()
    slow = tmp_path / "bin" / "cat"
    slow.write_text(SLOW_CAT)
    slow.chmod(0o755)
    notice = JobNotice(NoticePlan(), tmp_path, Host(), ())
    paths = [f"{slow.parent}:{os.environ['PATH']}", *[os.environ["PATH"]] * 2]  # the first is slow
    for deadline, path in zip(deadlines, paths, strict=False):
        order = notice_order("stop", deadline, None)
        notice.give(order, {"PATH": path, "NOTICE": notice.file}, None)
    while notice.is_being_given:  # at most a second
        time.sleep(0.05)
    assert json.loads(Path(notice.file).read_text())["deadline"] == last


@pytest.mark.parametrize(("grace", "saved"), [("1s", False), ("30s", True)])
def test_stop_grace_is_the_time_between_sigterm_and_sigkill(
    cluster: LocalCluster, grace: str, saved: bool
) -> None:
    slow = "trap 'sleep 3; echo saved; exit' TERM; echo ready; sleep 1000 & wait"
    plan = make_plan(nodes=1, commands=(slow,), stop_grace=grace)
    assert stop_with_notice(cluster, plan, 0, "ready").status == "stopped"
    assert ("saved" in cluster.output(0)) is saved


def test_a_supervisor_that_takes_a_run_up_stops_it_at_the_deadline(cluster: LocalCluster) -> None:
    plan = make_plan(nodes=1, commands=("echo ready; sleep 1000",))

    async def lose() -> None:
        supervisor = cluster.supervisor(plan)
        running = asyncio.ensure_future(supervisor.run())
        await cluster.printed(0, "ready")
        supervisor.stop(3)
        running.cancel()
        await asyncio.wait([running])

    asyncio.run(lose())
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.reason) == ("stopped", "stopped on request")
    assert len(given(cluster)) == 1


TREE = """
import os, signal, subprocess, sys, time
signal.signal(signal.SIGUSR1, lambda *_: None)
if os.fork():
    if len(sys.argv) > 1:
        subprocess.Popen([sys.executable, sys.argv[0]], env={**os.environ, "LOCAL_RANK": "1"})
    print(os.getpid(), flush=True)
time.sleep(1000)
"""
"""A process with a handler and a fork of it, and the same as another rank below it."""


Start = Callable[..., list[int]]


@pytest.fixture
def start(tmp_path: Path) -> Iterator[Start]:
    """Start a program of the job that keeps its notice in tmp_path, return the ids it prints."""
    (tmp_path / "tree.py").write_text(TREE)
    (tmp_path / "mpirun").symlink_to(sys.executable)
    with ExitStack() as end:

        def start(program: str, *words: str, ids: int) -> list[int]:
            argv = [program, str(tmp_path / "tree.py"), *words]
            environment = {**os.environ, FILE: str(tmp_path)}
            process = subprocess.Popen(
                argv, env=environment, stdout=PIPE, text=True, start_new_session=True
            )
            assert process.stdout is not None
            end.callback(process.wait)
            end.callback(process.stdout.close)
            end.callback(os.killpg, process.pid, signal.SIGKILL)
            return [int(process.stdout.readline()) for _ in range(ids)]

        yield start


def test_each_rank_gets_one_signal_and_a_fork_of_it_none(start: Start, tmp_path: Path) -> None:
    ranks = start(sys.executable, "again", ids=2)
    marks = {FILE: str(tmp_path)}
    assert sorted(ranks_with_handler(marks, signal.SIGUSR1)) == sorted(ranks)
    assert ranks_with_handler(marks, signal.SIGUSR2) == []


def test_a_launcher_that_passes_signals_on_gets_none(start: Start, tmp_path: Path) -> None:
    """Ranks without a handler would die of it."""
    start(str(tmp_path / "mpirun"), ids=1)
    assert ranks_with_handler({FILE: str(tmp_path)}, signal.SIGUSR1) == []
