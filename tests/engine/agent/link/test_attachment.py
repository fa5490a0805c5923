"""A worker whose supervisor goes and comes back: which silence counts, and whose."""

import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.agent.link.event_stream import EventStream
from engine.agent.link.heartbeat import HeartbeatClient, HeartbeatServer
from engine.agent.link.times import TIMES
from engine.agent.node.supervisor_link import SOCKET, Attachment
from engine.contract.codec import to_json
from engine.contract.node_plan import HeartbeatAddress
from tests.engine.conftest import Reader

pytestmark = pytest.mark.slow

KEY = b"k" * 32
LOST_S = 0.2


class Heartbeats:
    """Heartbeats that are always answered."""

    def turn_to(self, to: HeartbeatAddress) -> None:
        """Do nothing."""


class Orders(list[str]):
    """What the worker was ordered, in order."""

    def post(self, message: dict[str, Any]) -> None:
        self.append(message["do"])

    def wait_for(self, word: str) -> None:
        while word not in self:
            time.sleep(0.01)


@pytest.fixture
def orders() -> Orders:
    return Orders()


@pytest.fixture
def attachment(tmp_path: Path, orders: Orders) -> Iterator[Attachment]:
    heartbeats: Any = Heartbeats()
    report = EventStream(Reader())
    attachment = Attachment(tmp_path, report, heartbeats, orders.post, LOST_S)
    attachment.listen()
    yield attachment
    attachment.close()


def supervise(folder: Path) -> socket.socket:
    """Connect as a supervisor that takes the run up, with an order."""
    connection = socket.socket(socket.AF_UNIX)
    connection.connect(str(folder / SOCKET))
    heartbeats = to_json(HeartbeatAddress("127.0.0.1", 1, KEY.hex(), answer_s=1.0, silence_s=1.0))
    greeting = {"do": "attach", "heartbeats": heartbeats, "received": 0}
    for message in (greeting, {"do": "start"}):
        connection.sendall(json.dumps(message).encode() + b"\n")
    return connection


def lose_pipe(attachment: Attachment) -> None:
    """The supervisor that launched the worker was killed."""
    read, write = os.pipe()
    os.close(write)
    with os.fdopen(read, "rb", buffering=0) as control:
        attachment.follow(control)
        while attachment.is_connected:
            time.sleep(0.01)


def test_a_supervisor_that_does_not_come_back_is_lost(
    attachment: Attachment, orders: Orders
) -> None:
    lose_pipe(attachment)
    orders.wait_for("supervisor_lost")


def test_a_timer_that_ends_as_a_supervisor_connects_does_not_count(
    attachment: Attachment, orders: Orders, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """`cancel` does nothing to a timer that runs already, which is the case here."""
    ended = threading.Event()
    run = threading.Timer.run

    def run_late(timer: threading.Timer) -> None:
        run(timer)
        ended.set()

    monkeypatch.setattr(threading.Timer, "cancel", lambda _: None)
    monkeypatch.setattr(threading.Timer, "run", run_late)
    lose_pipe(attachment)
    with supervise(tmp_path):
        orders.wait_for("start")
        ended.wait()
        assert orders == ["start"]
        assert attachment.is_connected


def test_each_supervisor_has_its_own_time_to_be_lost(
    attachment: Attachment, orders: Orders, tmp_path: Path
) -> None:
    lose_pipe(attachment)
    with supervise(tmp_path):
        orders.wait_for("start")
    orders.wait_for("supervisor_lost")
    assert orders == ["start", "supervisor_lost"]


def test_the_silence_of_the_supervisor_before_does_not_count_for_the_next() -> None:
    """The report of it may be read only when the next one has connected."""
    dead, living = HeartbeatServer(KEY, 1, TIMES), HeartbeatServer(KEY, 1, TIMES)
    client = HeartbeatClient(replace(dead.address_at("127.0.0.1"), silence_s=1.0), 0)
    while dead.describe(0).startswith("no heartbeat"):
        time.sleep(0.01)
    dead.close()
    time.sleep(4)  # the silence is reported, and nobody has read the report yet
    client.turn_to(replace(living.address_at("127.0.0.1"), silence_s=60.0))
    silences: list[str] = []
    client.follow(lambda: silences.append("silent"), lambda _: None)
    while living.describe(0).startswith("no heartbeat"):
        time.sleep(0.01)
    client.close()
    living.close()
    assert silences == []
