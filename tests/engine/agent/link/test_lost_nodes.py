"""Nodes that cannot be reached, that fall silent, and what is kept of them; real agents."""

import asyncio
import contextlib
import os
import re
import signal
from asyncio.subprocess import PIPE, Process
from collections.abc import Iterator
from pathlib import Path

import pytest

from engine.agent.link.times import Times
from engine.contract.head_events import Evidence, NodeAnswersAgain, NodeLost, NodeUnreachable
from engine.contract.verdict import Verdict
from engine.contract.worker_events import NodeStarted
from tests.engine.conftest import LocalCluster, LocalLauncher, make_plan
from tests.storm.supervise import heartbeats_below

pytestmark = pytest.mark.slow

SOURCES = [
    "connect",
    "heartbeats",
    "interfaces",
    "kernel",
    "load",
    "neighbours",
    "ping",
    "processes",
    "sockets",
    "ssh",
]
REFUSED = "ssh: connect to host 10.213.1.11 port 22: Connection refused"
RUNS = make_plan(commands=("echo runs; sleep 1000",))

FROZEN: set[int] = set()
"""Processes that a test stopped."""


@pytest.fixture
def run_on(cluster: LocalCluster) -> Iterator[LocalCluster]:
    """The cluster; what a test stopped ends before its folder goes."""
    yield cluster
    for pid in FROZEN:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGCONT)  # it sees that its worker has ended, and ends
    FROZEN.clear()


def freeze(cluster: LocalCluster, rank: int, number: signal.Signals = signal.SIGSTOP) -> None:
    """The node stands still: its worker, its heartbeats and its job; SIGCONT ends that."""
    worker = cluster.launcher.processes[rank].pid
    children = Path(f"/proc/{worker}/task/{worker}/children").read_text().split()
    for pid in (*map(int, children), worker):
        os.kill(pid, number)
        FROZEN.add(pid)


def answering_process() -> int:
    """The process that answers the nodes' heartbeats for the supervisor in this process."""
    (pid,) = heartbeats_below([os.getpid()])
    return pid


def evidence_files(cluster: LocalCluster, node: str) -> list[str]:
    return sorted(path.stem for path in (cluster.folder / "evidence" / node).iterdir())


def test_a_node_that_falls_silent_is_lost_with_what_was_seen(run_on: LocalCluster) -> None:
    run_on.times = Times(silence_s=3)

    async def silence() -> Verdict:
        running = asyncio.ensure_future(run_on.supervisor(RUNS).run())
        await run_on.printed(1, "runs")
        freeze(run_on, 1)
        return await running

    verdict = asyncio.run(silence())
    seen = r"has not answered for 3 s \(last heard \d\d:\d\d:\d\d UTC\)"
    assert re.fullmatch(f"node1 {seen}", verdict.reason), verdict
    assert (verdict.status, verdict.exit_code, verdict.first_failed_rank) == ("failed", 125, 1)
    (lost,) = [e for e in run_on.events() if isinstance(e, NodeLost)]
    assert re.fullmatch(seen, lost.reason)
    assert ("node_stopped", 0) in run_on.kinds()
    assert evidence_files(run_on, "node1") == SOURCES
    kept = {e.source: e.text for e in run_on.events() if isinstance(e, Evidence)}
    assert sorted(kept) == SOURCES
    assert "from 127.0.0.1:" in kept["heartbeats"]
    assert "/proc/loadavg" in kept["load"]


def test_evidence_shows_no_secret(cluster: LocalCluster, no_pause: None) -> None:
    secret = "geheim-0123456789"
    failing(cluster, f"echo motd; echo denied with {secret} >&2; exit 255")
    plan = make_plan(env={"TOKEN": {"secret": "MY_TOKEN"}}, commands=("sleep 1000",))
    cluster.execute(plan, {"MY_TOKEN": secret})
    assert (cluster.folder / "evidence/node1/ssh.txt").read_text() == "denied with ***\n"
    kept = [path for path in (cluster.folder / "evidence").rglob("*") if path.is_file()]
    assert not [path for path in kept if secret in path.read_text()]


def test_a_short_silence_is_survived_and_nothing_is_lost_or_doubled(run_on: LocalCluster) -> None:
    run_on.times = Times(notable_s=2)

    async def silence() -> Verdict:
        running = asyncio.ensure_future(run_on.supervisor(plan).run())
        await run_on.printed(1, "tick 3\n")
        freeze(run_on, 1)
        await asyncio.sleep(4)
        freeze(run_on, 1, signal.SIGCONT)
        return await running

    plan = make_plan(commands=("for i in $(seq 30); do echo tick $i; sleep 0.1; done",))
    assert asyncio.run(silence()).status == "done"
    ticks = "".join(f"tick {i}\n" for i in range(1, 31))
    assert (run_on.output(0), run_on.output(1)) == (ticks, ticks)
    assert [e.rank for e in run_on.events() if isinstance(e, NodeAnswersAgain)] == [1]
    assert not (run_on.folder / "evidence").exists()


def test_a_worker_that_does_not_hear_the_head_ends_its_job(run_on: LocalCluster) -> None:
    run_on.times = Times(silence_s=1000, head_silence_s=3)

    async def deafen() -> Verdict:
        running = asyncio.ensure_future(run_on.supervisor(RUNS).run())
        await run_on.printed(0, "runs")
        await run_on.printed(1, "runs")
        os.kill(answering_process(), signal.SIGSTOP)
        return await running

    verdict = asyncio.run(deafen())
    assert re.fullmatch("node[01] has not heard the head for 3 s", verdict.reason)
    assert verdict.exit_code == 125


def test_a_run_survives_that_the_process_of_its_heartbeats_is_killed(run_on: LocalCluster) -> None:
    """By a kernel that is short of memory; the nodes' silence is noticed as before."""
    run_on.times = Times(silence_s=3, head_silence_s=4)

    async def kill() -> Verdict:
        running = asyncio.ensure_future(run_on.supervisor(RUNS).run())
        await run_on.printed(0, "runs")
        await run_on.printed(1, "runs")
        os.kill(answering_process(), signal.SIGKILL)
        done, _ = await asyncio.wait([running], timeout=6)
        assert not done
        freeze(run_on, 1)
        return await running

    verdict = asyncio.run(kill())
    assert re.fullmatch(r"node1 has not answered for 3 s \(last heard .*\)", verdict.reason)


def test_no_job_starts_before_heartbeats_are_answered(cluster: LocalCluster) -> None:
    cluster.times = Times(answer_s=0.5, hung_s=-1)  # it answers nobody
    verdict = cluster.execute(RUNS)
    seen = r"the head does not answer its heartbeats \(UDP, 127\.0\.0\.1:\d+\) within 0\.5 s"
    assert re.fullmatch(f"node[01] cannot run the job: {seen}", verdict.reason)
    assert not [e for e in cluster.events() if isinstance(e, NodeStarted)]


class Failing(LocalLauncher):
    """The first tries of a rank end as `script` says."""

    def __init__(self, of: LocalLauncher, script: str, times: int, rank: int) -> None:
        super().__init__(of._folder, of._agent)
        self._script, self._left, self._rank = script, times, rank
        self.tries = 0
        self.third_try = asyncio.Event()

    async def open(self, rank: int) -> Process:
        if rank != self._rank:
            return await super().open(rank)
        self.tries += 1
        self._left -= 1
        if self.tries == 3:
            self.third_try.set()
        if self._left < 0:
            return await super().open(rank)
        return await asyncio.create_subprocess_exec(
            *("bash", "-c", self._script), stdin=PIPE, stdout=PIPE, stderr=PIPE
        )


def failing(cluster: LocalCluster, script: str, times: int = 1000, rank: int = 1) -> Failing:
    launcher = Failing(cluster.launcher, script, times, rank)
    cluster.launcher = launcher
    return launcher


@pytest.fixture
def no_pause(cluster: LocalCluster) -> None:
    cluster.times = Times(retry_s=0.05, reach_s=15)  # a busy machine needs some for node0


@pytest.fixture
def soon_lost(cluster: LocalCluster) -> None:
    """A node that does not answer is given up soon: no worker has to start within that time."""
    cluster.times = Times(retry_s=0.05, reach_s=3)


ALONE = make_plan(nodes=1, commands=("echo runs; sleep 1000",))


def test_a_node_that_answers_late_is_tried_again(cluster: LocalCluster, no_pause: None) -> None:
    launcher = failing(cluster, f"echo {REFUSED} >&2; exit 255", times=2)
    plan = make_plan(commands=("echo runs",))
    assert cluster.execute(plan).status == "done"
    assert launcher.tries == 3
    assert cluster.output(1) == "runs\n"


def test_a_node_that_never_answers_cannot_be_reached(
    cluster: LocalCluster, soon_lost: None
) -> None:
    launcher = failing(cluster, f"echo {REFUSED} >&2; exit 255", rank=0)
    verdict = cluster.execute(ALONE)
    assert verdict.reason == f"node0 cannot be reached: {REFUSED}"
    assert (verdict.exit_code, verdict.first_failed_rank) == (125, 0)
    assert launcher.tries > 1
    (unreachable,) = [e for e in cluster.events() if isinstance(e, NodeUnreachable)]
    assert unreachable.reason == REFUSED
    assert not [e for e in cluster.events() if isinstance(e, NodeLost)]
    assert evidence_files(cluster, "node0") == SOURCES
    assert (cluster.folder / "evidence/node0/ssh.txt").read_text() == f"{REFUSED}\n"


def test_what_an_earlier_try_said_is_kept_where_the_last_one_was_given_up(
    cluster: LocalCluster, soon_lost: None
) -> None:
    once = cluster.folder / "once"
    script = f"mkdir {once} 2>/dev/null || exec sleep 1000; echo {REFUSED} >&2; exit 255"
    failing(cluster, script, rank=0)
    assert cluster.execute(ALONE).reason == f"node0 cannot be reached: {REFUSED}"
    assert (cluster.folder / "evidence/node0/ssh.txt").read_text() == f"{REFUSED}\n"


def test_a_node_whose_ssh_hangs_cannot_be_reached(cluster: LocalCluster, soon_lost: None) -> None:
    failing(cluster, "exec sleep 1000", rank=0)
    assert cluster.execute(ALONE).reason == "node0 cannot be reached: no answer within 3 s"


@pytest.mark.parametrize(
    ("script", "reason"),
    [
        ("""echo '{"kind": "reached"}'; exit 255""", "the ssh connection to it ended"),
        ("echo motd; echo Broken pipe >&2; exit 255", "Broken pipe"),
        ("echo no systemd-run >&2; exit 127", "no systemd-run"),
    ],
)
def test_a_worker_that_may_have_begun_is_not_launched_again(
    cluster: LocalCluster, no_pause: None, script: str, reason: str
) -> None:
    launcher = failing(cluster, script)
    assert cluster.execute(RUNS).reason == f"node1 was lost: {reason}"
    assert launcher.tries == 1


def test_a_run_that_ends_does_not_go_on_trying(cluster: LocalCluster, no_pause: None) -> None:
    async def stop() -> Verdict:
        supervisor = cluster.supervisor(RUNS)
        running = asyncio.ensure_future(supervisor.run())
        await launcher.third_try.wait()
        supervisor.stop()
        return await asyncio.wait_for(running, 20)

    launcher = failing(cluster, f"echo {REFUSED} >&2; exit 255")
    assert asyncio.run(stop()).status == "stopped"
    assert not [e for e in cluster.events() if isinstance(e, (NodeLost, NodeUnreachable))]
