"""Signals to process groups: none after the leader is reaped, when its number may be another's."""

import asyncio
import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from engine.agent.link.units import STOP_GRACE_S
from engine.agent.node.container import Host
from engine.agent.node.exec_client import SOCKET
from engine.agent.node.exec_server import Entrance
from engine.agent.node.process_group import ProcessGroup
from tests.engine.agent.notify.test_notifier import execute, notified, plan_for
from tests.engine.conftest import LocalCluster, make_plan
from tests.processes import wait_for_end

KEPT = """\
( for look in 1 2 3; do sleep 0.05; test -e /proc/$$ || exit; done; echo the leader is kept ) &
exit 0
"""


def group_of(script: str) -> ProcessGroup:
    process = subprocess.Popen(["bash", "-c", script], start_new_session=True)
    return ProcessGroup(process)


@pytest.fixture
def late(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The groups that got a signal although their leader was reaped."""
    late: list[int] = []
    killpg: Callable[[int, int], None] = os.killpg

    def watch(group: int, number: int) -> None:
        if not Path(f"/proc/{group}").exists():
            late.append(group)
        killpg(group, number)

    monkeypatch.setattr(os, "killpg", watch)
    return late


def test_the_job_of_a_worker_is_not_reaped_while_its_group_may_get_signals(
    cluster: LocalCluster,
) -> None:
    assert cluster.execute(make_plan(nodes=1, commands=(KEPT,))).status == "done"
    assert cluster.output(0) == "the leader is kept\n"


def test_a_command_whose_caller_left_gets_no_signal_after_it_was_reaped(
    tmp_path: Path, late: list[int]
) -> None:
    entrance = Entrance(tmp_path, Host(), "10.213.1.10 node0\n", 0, STOP_GRACE_S)
    entrance.open(Host().environment())
    mark = tmp_path / "pid"
    command = f"echo $$ > {mark}.part; mv {mark}.part {mark}; exec sleep 1000"
    with socket.socket(socket.AF_UNIX) as caller, Path(os.devnull).open("r+b") as null:
        caller.connect(str(tmp_path / SOCKET))
        socket.send_fds(caller, [b"\0"], [null.fileno()] * 3)
        caller.sendall(json.dumps({"do": "run", "host": "", "command": command}).encode() + b"\n")
        while not mark.exists():
            threading.Event().wait(0.01)
    wait_for_end(int(mark.read_text()))
    entrance.wait(20)
    while any(thread.name.endswith("(_attend)") for thread in threading.enumerate()):
        threading.Event().wait(0.01)
    entrance.close()
    assert late == []


def test_a_try_of_a_notification_gets_no_signal_after_it_was_reaped(
    cluster: LocalCluster, late: list[int]
) -> None:
    plan = plan_for({"command": "true", "on": ("end",)})
    asyncio.run(execute(cluster, plan))
    assert notified(cluster) == [("end", 1, "")]
    assert late == []


def test_a_group_has_its_number_until_it_is_released() -> None:
    group = group_of("sleep 1000 & exit 7")
    assert group.wait() == 7
    assert group.status == 7
    assert group.has_processes()
    group.signal(signal.SIGKILL)
    while group.has_processes():
        threading.Event().wait(0.01)
    assert Path(f"/proc/{group.number}").exists()
    assert group.release() == 7
    assert not Path(f"/proc/{group.number}").exists()
    group.signal(signal.SIGKILL)  # nobody gets it
    assert (group.status, group.wait(), group.wait(1)) == (7, 7, 7)


def test_a_leader_that_lives_has_no_status() -> None:
    group = group_of("exec sleep 1000")
    assert (group.status, group.wait(0.1)) == (None, None)
    group.signal(signal.SIGTERM)
    assert group.wait(20) == -signal.SIGTERM
    assert group.release() == -signal.SIGTERM
