"""A supervisor that is killed: the next one takes the run up from the journal."""

import asyncio
import json
import multiprocessing
import os
import signal
import sys
import time
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable
from dataclasses import replace
from multiprocessing.process import BaseProcess
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.attempt_runner import RunningAttempt
from engine.agent.head.recorder import Recorder
from engine.agent.head.run_state import RunState, journal_events
from engine.agent.journal import run_secrets_file
from engine.agent.journal.clock import RunClock
from engine.agent.journal.journal import E, Journal
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.judge.output_reader import DERIVED, OutputReader
from engine.agent.link import control
from engine.agent.link.launcher import HELD
from engine.agent.link.ssh_multiplexing import CONNECT_S
from engine.agent.link.times import TIMES
from engine.agent.metrics.samples import Samples
from engine.agent.node import evidence
from engine.contract.codec import from_json, to_json
from engine.contract.event import Event, change, to_line
from engine.contract.events import decode
from engine.contract.head_events import (
    DroppedOutput,
    HeadEnding,
    OutputDropped,
    RunFinished,
    SupervisorResumed,
)
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import NodeReady, NodeStarted
from tests.engine.bare_events import STARTED, printed
from tests.engine.conftest import LocalCluster, LocalLauncher, make_plan
from tests.processes import is_alive
from tests.storm.supervise import heartbeats_of

pytestmark = pytest.mark.slow

RANKS = st.integers(0, 2)
FROM_WORKERS: st.SearchStrategy[dict[str, Any]] = st.one_of(
    st.sampled_from(
        [
            {"kind": "node_prepared"},
            {"kind": "node_prepared"},
            {"kind": "node_prepared"},
            {"kind": "node_started", "pid": 7},
            {"kind": "node_ready"},
            {"kind": "node_not_prepared", "reason": "no image"},
            {"kind": "node_not_ready", "reason": "no port"},
            {"kind": "node_exited", "exit_code": 0, "signal": None},
            {"kind": "node_exited", "exit_code": 7, "signal": None},
            {"kind": "node_interrupted", "action": "terminate", "at": "soon"},
        ]
    ),
    st.builds(lambda process: {"kind": "rank_started", "process": process, "size": 3}, RANKS),
)
FROM_SUPERVISOR = st.sampled_from(
    [
        {"kind": "node_lost", "reason": "silent"},
        {"kind": "node_lost", "reason": "ended", "symptom": "was lost: ended"},
        {"kind": "node_unreachable", "reason": "refused"},
        {"kind": "node_stopped", "reason": "never started"},
        {"kind": "network_seen", "level": "fault", "text": "sockets"},
        {"kind": "node_gone", "reason": "ended"},
    ]
)
OF_RUN = st.sampled_from(
    [
        {"kind": "stop_asked", "reason": "asked"},
        {"kind": "duration_over", "seconds": 60},
        {"kind": "notice_given", "rank": None, "notice": "stop", "deadline": 9.0, "text": "soon"},
        {"kind": "notice_given", "rank": 1, "notice": "rebalance", "deadline": None, "text": "-"},
        {"kind": "lease_ending", "at": 9.0},
        {"kind": "head_ending"},
        {"kind": "output_stopped", "seconds": 60},
        {"kind": "startup_over", "seconds": 60},
        {"kind": "nodes_healed", "addresses": {"node1": "10.0.0.9"}},
    ]
)
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("worker"), RANKS, FROM_WORKERS),
        st.tuples(st.just("supervisor"), RANKS, FROM_SUPERVISOR),
        st.tuples(st.just("run"), st.none(), OF_RUN),
    ),
    max_size=40,
)


def event_of(data: dict[str, Any]) -> Event:
    """The event that the JSON has."""
    event = decode(data)
    assert event is not None
    return event


class Remembering(Journal):
    """A journal whose lines are in memory."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.folder = Path()
        self.clock = RunClock()

    def append(self, event: E) -> E:
        event = change(event, time=event.time or 1.0)
        self.lines.append(to_line(event))
        return event


@given(STEPS, st.sampled_from(["any", "master-first", "workers-first"]))
def test_the_state_after_any_prefix_of_a_run_is_that_of_its_journal(
    steps: list[tuple[str, int | None, dict[str, Any]]], order: str
) -> None:
    plan = make_plan(nodes=3, startup_order=order)
    journal, resumed = Remembering(), RunState(plan)
    recorder = Recorder(RunState(plan), journal)
    samples, launcher = (
        Samples(plan, journal.folder, recorder.record),
        LocalLauncher(Path(), Path()),
    )
    attempt = RunningAttempt(
        *(recorder, OutputReader(plan), samples, launcher, {}, TIMES), is_resumed=False
    )
    recorder.record(STARTED)
    for sequence, (by, rank, fields) in enumerate(steps, 1):
        if by == "worker" and rank is not None:
            sent = {**fields, "rank": rank, "time": 1.0, "sequence": sequence}
            attempt.receive(rank, event_of(sent))
        elif by == "supervisor":
            recorder.record(event_of({"rank": rank, **fields}))
        else:
            recorder.record(event_of(fields))
        for line in journal.lines:
            resumed.add(event_of(json.loads(line)))
        journal.lines.clear()
        assert vars(resumed) == vars(recorder.state)


def test_findings_of_a_killed_supervisor_are_recorded_once() -> None:
    plan = make_plan(nodes=1)
    text = "gpuctl: in a pipe of entry {} of the commands, part 1 of 2 ended with 1"
    journal: list[Event] = []
    reader = OutputReader(plan)
    for entry in range(3):
        journal += reader.read(printed(text.format(entry)))
    assert [isinstance(event, DERIVED) for event in journal] == [False, True] * 3
    for cut in range(len(journal) + 1):
        resumed = OutputReader(plan)
        for event in journal[:cut]:
            resumed.replay(event)
        assert resumed.unrecorded == (journal[cut : cut + 1] if cut % 2 else [])


def test_an_incomplete_line_is_cut_off(tmp_path: Path) -> None:
    path = tmp_path / JOURNAL
    path.write_bytes(b'{"kind": "head_ending"}\n{"kind": "no')
    Journal(path).close()
    assert path.read_bytes() == b'{"kind": "head_ending"}\n'
    assert list(journal_events(path)) == [HeadEnding()]


def test_output_that_the_budget_removed_is_not_missing() -> None:
    recorded = RunState(make_plan(nodes=1))
    gone = DroppedOutput(rank=0, size=1, since=1.0, until=2.0, sequence=7)
    for event in (
        NodeReady(0, sequence=1),
        OutputDropped(0, 9, (gone,)),
        NodeStarted(0, 4711, sequence=8),
    ):
        recorded.add(event)
    assert (recorded.missing, recorded.received) == (0, {0: 8})


def supervise(folder: Path, plan: str) -> None:
    LocalCluster(folder).execute(from_json(LaunchPlan, json.loads(plan)))


class Supervised:
    """A run on the cluster, its supervisor in a process of its own, which can be killed."""

    def __init__(self, cluster: LocalCluster, plan: LaunchPlan) -> None:
        self._cluster, self._plan = cluster, plan
        self._process = self._start()

    def _start(self) -> BaseProcess:
        spawn = multiprocessing.get_context("spawn")
        arguments = (self._cluster.folder, json.dumps(to_json(self._plan)))
        process = spawn.Process(target=supervise, args=arguments)
        process.start()
        return process

    def kill_when(self, condition: Callable[[str], bool]) -> None:
        """Kill the supervisor once the journal fulfils the condition; start the next one."""
        journal = self._cluster.folder / JOURNAL
        deadline = time.monotonic() + 120
        while not condition(journal.read_text()):
            assert time.monotonic() < deadline
            time.sleep(0.01)
        self._process.kill()
        self._process.join()
        self._process = self._start()

    def finish(self) -> RunFinished:
        self._process.join(120)
        assert self._process.exitcode == 0
        last = self._cluster.events()[-1]
        assert isinstance(last, RunFinished)
        return last


def test_a_supervisor_killed_during_output_loses_and_doubles_no_line(cluster: LocalCluster) -> None:
    prints = "for i in $(seq 200); do echo tick $i; sleep 0.01; done; seq 2000"
    waits = f"until test -e {cluster.folder}/killed; do sleep 0.05; done"
    run = Supervised(cluster, make_plan(commands=(f"{prints}; {waits}",)))
    run.kill_when(lambda journal: "tick 20" in journal)
    run.kill_when(lambda journal: "supervisor_resumed" in journal and "\\n100\\n" in journal)
    (cluster.folder / "killed").touch()
    assert run.finish().status == "done"
    ticks = [f"tick {i}" for i in range(1, 201)] + [str(i) for i in range(1, 2001)]
    for rank in (0, 1):
        assert cluster.output(rank).splitlines() == ticks
    events = cluster.events()
    assert len([e for e in events if isinstance(e, NodeStarted)]) == 2
    assert len([e for e in events if isinstance(e, SupervisorResumed)]) == 2


@pytest.mark.parametrize("seen", ["run_started", "node_prepared"])
def test_a_supervisor_killed_while_it_starts_the_nodes(cluster: LocalCluster, seen: str) -> None:
    plan = make_plan(commands=("echo once",), startup_order="master-first")
    run = Supervised(cluster, plan)
    run.kill_when(lambda journal: seen in journal)
    assert run.finish().status == "done"
    assert (cluster.output(0), cluster.output(1)) == ("once\n", "once\n")


def test_a_supervisor_killed_while_it_stops_the_nodes(cluster: LocalCluster) -> None:
    saves = "trap 'sleep 2; echo saved; exit 0' TERM; echo traps; sleep 1000 & wait"
    fails = f"until grep -q traps {cluster.folder}/{JOURNAL}; do sleep 0.1; done; exit 3"
    command = f"if [ $DSTACK_NODE_RANK = 0 ]; then {fails}; else {saves}; fi"
    run = Supervised(cluster, make_plan(commands=(command,)))
    run.kill_when(lambda journal: '"node_exited"' in journal)
    end = run.finish()
    assert (end.status, end.exit_code, end.reason) == ("failed", 3, "node0: exited with 3")
    assert cluster.output(1) == "traps\nsaved\n"
    assert cluster.kinds().count(("node_stopped", 1)) == 1


def test_a_supervisor_takes_up_a_worker_whose_heartbeats_were_killed(
    cluster: LocalCluster,
) -> None:
    """Without them the worker did not read the next supervisor's orders, and ran on alone."""
    waits = f"until test -e {cluster.folder}/go; do sleep 0.05; done"
    run = Supervised(cluster, make_plan(commands=(f"echo runs; {waits}; echo goes on",)))

    def kill_heartbeats(journal: str) -> bool:
        if journal.count('"runs"') < 2:
            return False
        (heartbeats,) = heartbeats_of(cluster.folder / "node1")
        os.kill(heartbeats, signal.SIGKILL)
        return True

    run.kill_when(kill_heartbeats)
    (cluster.folder / "go").touch()
    assert run.finish().status == "done"
    assert cluster.output(1) == "runs\ngoes on\n"


class Breaking(LocalLauncher):
    """Rank 1's connection breaks once `cut` exists, and is not made at once; its worker runs on."""

    is_cut = True

    async def attach(self, rank: int) -> Process:
        if not self.is_cut:
            return await super().attach(rank)
        self.is_cut = False
        return await asyncio.create_subprocess_exec(
            *("sh", "-c", "exit 255"), stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )

    async def open(self, rank: int) -> Process:
        if rank != 1:
            return await super().open(rank)
        work = f"{sys.executable} {self._agent} work {self._folder}/node1"
        pipe = f"{self._folder}/pipe"  # only `cat` holds the connection's end
        script = f"""
            mkfifo {pipe}; exec 3<&0; {work} <&3 3<&- > {pipe} 2> /dev/null & cat {pipe} & c=$!
            until test -e {self._folder}/cut; do sleep 0.1; done; kill $c; exit 255"""
        return await asyncio.create_subprocess_exec(
            *("bash", "-c", script), stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )


def test_a_worker_has_its_jobs_grace_before_the_run_ends_without_it() -> None:
    """With a shorter time its job still ran when the run was over."""
    assert TIMES.stop_s >= CONNECT_S


def test_a_worker_that_outlives_its_connection_is_ended(
    cluster: LocalCluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def collect(_: str) -> dict[str, str]:
        return {}  # the run's end waits for the job, and not by chance for evidence

    monkeypatch.setattr(evidence, "collect", collect)
    cluster.launcher = Breaking(cluster.folder, cluster.folder / "agent.pyz")
    cluster.times = replace(TIMES, reconnect_s=0.5)  # for one attempt, which fails
    saves = f"trap 'sleep 2; touch {cluster.folder}/saved; exit 0' TERM"
    cut = f"if [ $DSTACK_NODE_RANK = 1 ]; then {saves}; echo $$ > {cluster.folder}/cut; fi"
    verdict = cluster.execute(make_plan(commands=(f"{cut}; sleep 1000 & wait",)))
    assert verdict.reason == "node1 was lost: the ssh connection to it ended"
    assert not is_alive(int((cluster.folder / "cut").read_text()))
    assert (cluster.folder / "saved").exists()


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """The folder of a run whose journal begins with this boot, and whose plan is in memory."""
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path / "memory"))
    folder = tmp_path / "job-000001"
    folder.mkdir()
    began = {"kind": "run_started", "boot_id": run_secrets_file.boot_id()}
    (folder / JOURNAL).write_text(json.dumps(began) + "\n")
    return folder


def lost_reason(printed: str) -> str:
    last = json.loads(printed.splitlines()[-1])
    assert last["kind"] == "supervisor_lost"
    return str(last["reason"])


def test_who_follows_waits_for_a_supervisor_that_may_come_back(
    folder: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    run_secrets_file.write_handover(folder, b"{}")
    assert run_secrets_file.handover_path(folder).stat().st_mode & 0o777 == 0o600
    began = time.monotonic()
    control.follow(folder, "0", 0.5)
    assert time.monotonic() - began >= 0.5
    assert lost_reason(capfd.readouterr().out) == ""


def test_a_head_that_was_rebooted_is_named(folder: Path, capfd: pytest.CaptureFixture[str]) -> None:
    (folder / JOURNAL).write_text('{"kind": "run_started", "boot_id": "0123456789"}\n')
    control.follow(folder, "0", 0.5)
    now = run_secrets_file.boot_id()[:8]
    assert lost_reason(capfd.readouterr().out) == (
        f"the head was rebooted (boot {now} differs from 01234567, in which it began)"
    )
