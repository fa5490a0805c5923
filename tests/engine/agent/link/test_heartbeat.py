"""Heartbeats: who is silent, and what nobody can fake."""

import os
import re
import select
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.link.heartbeat import HeartbeatClient, HeartbeatServer
from engine.agent.link.heartbeat_process import BEAT_S, STALL_S, SilenceWatch, seal, unseal
from engine.agent.link.times import TIMES, Times
from engine.contract.node_plan import HeartbeatAddress
from tests.processes import wait_for_end

pytestmark = pytest.mark.slow

KEY = b"k" * 32
STEPS = st.lists(st.tuples(st.floats(0.01, STALL_S), st.booleans()), max_size=200)
"""Seconds since the step before, none in which the watch stood still, and whether it hears."""


@given(STEPS)
def test_a_peer_is_silent_after_the_bound_and_never_before(steps: list[tuple[float, bool]]) -> None:
    watch, now, heard = SilenceWatch(TIMES.silence_s), 0.0, 0.0
    watch.hear(7, now)
    for seconds, hears in steps:
        now += seconds
        if hears:
            watch.hear(7, now)
            heard = now
        silent = watch.look(now)
        assert silent == ([7] if now - heard >= TIMES.silence_s else [])
        if silent:
            watch.hear(7, now + 1)  # too late
            assert watch.look(now + 1) == watch.look(now + 2 * TIMES.silence_s) == []
            return


@given(STEPS, st.floats(STALL_S, 1000))
def test_what_stands_still_itself_takes_nobody_for_silent(
    steps: list[tuple[float, bool]], still: float
) -> None:
    """After a pause of our own a peer has as much time left as it had before."""
    watches = SilenceWatch(TIMES.silence_s), SilenceWatch(TIMES.silence_s)
    now, pause = 0.0, 0.0
    for watch in watches:
        watch.hear(0, 0.0)
    for seconds, hears in [*steps[:3], (still + 0.1, False), *steps[3:]]:
        if seconds > STALL_S:
            pause = seconds
            assert watches[1].look(now + pause) == []
            continue
        now += seconds
        if hears:
            watches[0].hear(0, now)
            watches[1].hear(0, now + pause)
        assert watches[0].look(now) == watches[1].look(now + pause)


def test_the_time_of_a_silence_is_returned_when_it_ends() -> None:
    watch = SilenceWatch(TIMES.silence_s)
    assert watch.hear(1, 0.0) == 0
    assert [watch.look(float(second)) for second in range(1, 9)] == [[]] * 8
    assert watch.hear(1, 8.0) == 8


def test_a_head_gives_up_a_node_before_the_node_gives_up_its_job() -> None:
    """Else a disturbance that the run survives would end a job."""
    assert TIMES.silence_s + 2 * BEAT_S < TIMES.head_silence_s


@given(st.binary(max_size=64))
def test_what_is_not_sealed_with_the_runs_key_is_no_heartbeat(data: bytes) -> None:
    assert unseal(KEY, b"q", data) is None


def test_a_heartbeat_counts_for_its_run_its_kind_and_as_it_is() -> None:
    data = seal(KEY, b"q", 3, 17)
    assert unseal(KEY, b"q", data) == (3, 17)
    assert unseal(b"other" * 8, b"q", data) is None
    assert unseal(KEY, b"a", data) is None
    for place in range(len(data)):
        changed = data[:place] + bytes([data[place] ^ 1]) + data[place + 1 :]
        assert unseal(KEY, b"q", changed) is None


@pytest.fixture
def server() -> Iterator[HeartbeatServer]:
    server = HeartbeatServer(KEY, 6, TIMES)
    yield server
    server.close()


def address(server: HeartbeatServer) -> HeartbeatAddress:
    return HeartbeatAddress("127.0.0.1", server.port, KEY.hex(), answer_s=10.0, silence_s=1.5)


def question(server: HeartbeatServer, rank: int, number: int, key: bytes = KEY) -> bytes | None:
    """What the server answers to a heartbeat."""
    return question_at(server.port, rank, number, key)


def question_at(port: int, rank: int, number: int, key: bytes = KEY) -> bytes | None:
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as node:
        node.settimeout(1)
        node.sendto(seal(key, b"q", rank, number), ("127.0.0.1", port))
        try:
            return node.recv(64)
        except TimeoutError:
            return None


def next_report(server: HeartbeatServer) -> dict[str, Any]:
    """The next report, as soon as there is one."""
    select.select([server], [], [])
    return next(server.reports())


def test_both_sides_hear_each_other(server: HeartbeatServer) -> None:
    client = HeartbeatClient(address(server), 5)
    client.follow(lambda: None, lambda _: None)
    assert client.wait_for_answer()
    assert re.fullmatch(
        r"heartbeat \d+ from 127\.0\.0\.1:\d+ at \d\d:\d\d:\d\d UTC", server.describe(5)
    )
    assert server.describe(4) == f"no heartbeat has come to port {server.port}"
    client.close()


def test_an_old_heartbeat_sent_again_is_not_answered(server: HeartbeatServer) -> None:
    assert question(server, 1, 2) == seal(KEY, b"a", 1, 2)
    assert question(server, 1, 2) is None
    assert question(server, 1, 1) is None
    assert question(server, 1, 3, key=b"x" * 32) is None
    assert question(server, 6, 1) is None  # not a rank of the run
    assert question(server, 1, 3) == seal(KEY, b"a", 1, 3)


def test_a_silent_node_is_reported_once_with_the_time_it_was_heard() -> None:
    server = HeartbeatServer(KEY, 6, Times(silence_s=0.5))
    before = time.time()
    question(server, 1, 1)
    report = next_report(server)
    assert report["rank"] == 1
    assert before <= report["last_heard"] <= time.time() - 0.5
    assert select.select([server], [], [], 1.0)[0] == []
    server.close()


def test_a_silence_that_the_run_survives_is_reported() -> None:
    server = HeartbeatServer(KEY, 6, Times(notable_s=0.2))
    question(server, 1, 1)
    question(server, 1, 2)
    time.sleep(0.3)  # the silence
    question(server, 1, 3)
    report = next_report(server)
    assert report["rank"] == 1
    assert report["silence_s"] >= 0.3
    server.close()


def test_a_worker_hears_of_a_head_that_is_silent() -> None:
    server = HeartbeatServer(KEY, 6, TIMES)
    silent = threading.Event()
    client = HeartbeatClient(address(server), 0)
    client.follow(silent.set, lambda _: None)
    assert client.wait_for_answer()
    assert not silent.wait(2)
    server.close()
    assert silent.wait(20)
    client.close()


def test_a_workers_process_that_was_killed_is_replaced(server: HeartbeatServer) -> None:
    """The head answers the next one too, so its beats are numbered on."""
    client = HeartbeatClient(address(server), 5)
    client.follow(lambda: None, lambda _: None)
    assert client.wait_for_answer()
    first = client.pid
    os.kill(first, signal.SIGKILL)
    client.turn_to(address(server))  # whether the process lives or not
    before = server.describe(5).split(" at ")[0]
    while client.pid == first or server.describe(5).split(" at ")[0] == before:
        time.sleep(0.01)
    client.close()


OWNER = """
from engine.agent.link.heartbeat import HeartbeatServer
from engine.agent.link.times import TIMES
server = HeartbeatServer(b"k" * 32, 6, TIMES)
print(server.port, server.pid, flush=True)
input()
"""


def test_its_process_ends_with_its_owner_and_at_no_ones_request() -> None:
    """systemd ends a unit by SIGTERM to every process in it: heartbeats go on until it is gone."""
    argv = [sys.executable, "-c", OWNER]
    with subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as owner:
        assert owner.stdout is not None
        port, pid = map(int, owner.stdout.readline().split())
        assert question_at(port, 1, 1) == seal(KEY, b"a", 1, 1)
        os.kill(pid, signal.SIGTERM)
        assert question_at(port, 1, 2) == seal(KEY, b"a", 1, 2)
        owner.kill()
    wait_for_end(pid)


def _priority(pid: int) -> tuple[int, int]:
    return os.sched_getscheduler(pid), os.getpriority(os.PRIO_PROCESS, pid)


PRIORITY = _priority(0)
"""This process's, as it was before a server was there."""


def test_its_process_has_a_priority_of_its_own(server: HeartbeatServer) -> None:
    """It is raised where the machine permits it; nobody else's changes."""
    question(server, 1, 1)

    assert _priority(0) == PRIORITY
    if os.geteuid() == 0:
        assert _priority(server.pid) != PRIORITY


def test_its_process_holds_nothing_of_its_owner_open(server: HeartbeatServer) -> None:
    question(server, 1, 1)
    folder = Path(f"/proc/{server.pid}/fd")
    opened = {int(path.name): str(path.readlink()) for path in folder.iterdir()}
    assert [opened.pop(number) for number in (0, 1, 2)] == ["/dev/null"] * 3
    kinds = sorted(target.partition(":")[0] for target in opened.values())
    assert kinds == ["/memfd", "socket", "socket"]  # what it shares with its owner


def test_a_supervisor_that_reads_no_reports_keeps_no_node_from_its_answer() -> None:
    """All nodes of a large run answer again at once, while the supervisor is busy."""
    server = HeartbeatServer(KEY, 512, Times(notable_s=0.2))
    ranks = range(512)
    assert [rank for rank in ranks if question(server, rank, 1) is None] == []
    time.sleep(0.2)  # the silence
    assert [rank for rank in ranks if question(server, rank, 2) is None] == []
    reported: set[int] = set()
    while len(reported) < len(ranks):
        select.select([server], [], [])
        reported.update(report["rank"] for report in server.reports())
    server.close()


def test_all_reports_that_wait_are_read_at_once() -> None:
    server = HeartbeatServer(KEY, 6, Times(silence_s=0.5))
    for rank in range(6):
        question(server, rank, 1)
    reported = [next_report(server)["rank"]]
    while len(reported) < 6:
        select.select([server], [], [])
        reported += [report["rank"] for report in server.reports()]
    assert sorted(reported) == list(range(6))
    server.close()


def test_the_end_of_the_process_is_the_last_report(server: HeartbeatServer) -> None:
    question(server, 1, 1)
    os.kill(server.pid, signal.SIGKILL)
    assert next_report(server) == {}
    server.restart()
    assert question(server, 1, 2) == seal(KEY, b"a", 1, 2)


@pytest.mark.parametrize("side", ["server", "client"])
def test_its_process_shares_no_locks_with_its_owner(side: str) -> None:
    """A process that was forked while other threads ran has a copy of the locks that they held."""
    server = HeartbeatServer(KEY, 6, TIMES)
    client = HeartbeatClient(address(server), 5)
    client.follow(lambda: None, lambda _: None)
    assert client.wait_for_answer()
    first = server.pid if side == "server" else client.pid
    os.kill(first, signal.SIGKILL)
    if side == "server":
        server.restart()
    while (pid := server.pid if side == "server" else client.pid) == first:
        time.sleep(0.01)
    question(server, 1, 1)  # it has begun
    own = Path("/proc/self/cmdline").read_bytes()
    while not (other := Path(f"/proc/{pid}/cmdline").read_bytes()):
        time.sleep(0.01)  # between fork and exec
    assert other != own
    client.close()
    server.close()
