"""A client makes the lost nodes of a run again: when, how often, and what it reports.

That the machines are made, and nothing else, is in tests/provision/test_foreign_tags.py and
tests/e2e/test_lost_nodes.py.
"""

import asyncio
import json
import re
import shlex
import threading
from collections.abc import AsyncIterator, Callable, Collection
from contextlib import asynccontextmanager
from typing import Any

import pytest

from cli.output import Output
from config.errors import CloudError, GpuctlError, InputError
from config.target import Target
from engine.contract.head_events import AttemptStarted, RunNode, WaitingForNodes
from nodes.answers import Completed
from nodes.conversation import Conversation
from nodes.inventory import Inventory, Node
from operations.chosen_target import ChosenTarget
from operations.run_healing import Healing
from tests.cli.conftest import remember
from tests.connections import Connect, WithoutSsh
from tests.engine.conftest import make_inventory

WAITS = WaitingForNodes(time=0, nodes=("node1",), seconds=60)
THERE = make_inventory(2)
PREPARED = ("prepare", "node1")
MADE = ["up", PREPARED]
NEW = {"node1": THERE.nodes[1].private_ip}
HEALED, QUEUED_HEALED = ("job-000001", NEW), ("queued-000002", NEW)


class Cloud(WithoutSsh):
    """AWS, the run's head and a new node, as the client sees them.

    `answers` are those of the head about the lock; `refusals` those of AWS, one for each attempt.
    """

    def __init__(self) -> None:
        self.is_gone, self.only_adds = True, True
        self.first_pause_s = 0.01
        self.refusals: list[GpuctlError] = []
        self.answers: list[str] = []
        self.calls: list[Any] = []

    async def run(self, node: Node, command: str, **_: object) -> Completed:
        words = shlex.split(command)
        if words[:2] == ["test", "!"] and "send" not in words:  # whether the run was on the node
            return Completed(0 if node.name == "node1" and not self.is_gone else 1, "", "")
        (run_id,) = re.findall(r"runs/([a-z]+-\w+) ", command)
        self.calls.append((run_id, json.loads(words[-1].removeprefix("healed "))))
        return Completed(0, "", "")

    @asynccontextmanager
    async def converse(self, _: Node, command: str) -> AsyncIterator[Conversation]:
        assert command.endswith("hold /var/lib/gpuctl/runs/job-000001 healing")
        answer = asyncio.StreamReader()
        answer.feed_data(f"{self.answers.pop(0) if self.answers else 'held'}\n".encode())
        nothing: Any = None
        yield Conversation(nothing, answer)

    def replace(self, cluster: str, _: Target, announce: Callable[[], None]) -> Inventory | None:
        assert cluster == "demo"
        if not self.only_adds:
            return None
        if self.refusals:
            raise self.refusals.pop()
        if self.is_gone:
            announce()
            self.calls.append("up")
            self.is_gone = False
        return THERE

    def prepare(self, _: object, names: Collection[str]) -> list[str]:
        self.calls.append(("prepare", *names))
        return ["job-000001", "queued-000002"]

    def client(self) -> Healing:
        return Healing(
            ChosenTarget(region="us-east-1"),
            "job-000001",
            THERE,
            Output().progress(),
            self.prepare,
            self.first_pause_s,
            0.01,
            self.replace,
        )

    def heal(self, *events: Any) -> None:
        """Let a client see the events, and wait until it has nothing to do any more."""
        client = self.client()
        for event in events:
            client.see(event)
        client.join()


@pytest.fixture
def cloud(remembered: Target, reach_nodes: Callable[[Connect], None]) -> Cloud:
    remember(THERE, remembered)
    made = Cloud()
    reach_nodes(lambda _: made)
    return made


def test_a_machine_that_is_gone_is_made_again(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.heal(WAITS)
    assert cloud.calls == [*MADE, HEALED, QUEUED_HEALED]
    printed = "".join(capsys.readouterr())
    assert "-- node1: gpuctl makes the lost machines again\n" in printed
    assert "-- node1 ready again after 0s\n" in printed


def test_a_machine_that_another_client_made_is_reported(cloud: Cloud) -> None:
    cloud.is_gone = False
    cloud.heal(WAITS)
    assert cloud.calls == [PREPARED, HEALED, QUEUED_HEALED]


def test_a_refusal_is_printed_once_and_tried_again(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.refusals = [CloudError("no capacity", "wait") for _ in range(2)]
    cloud.heal(WAITS)
    assert cloud.calls[0] == "up"
    assert "".join(capsys.readouterr()).count("node1 cannot be made again: no capacity") == 1


def test_a_client_without_the_clusters_key_waits_for_one_that_has_it(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.refusals = [InputError("the key is not on this machine", "run it there")] * 3
    cloud.is_gone = False
    cloud.heal(WAITS)
    assert cloud.calls == [PREPARED, HEALED, QUEUED_HEALED]
    printed = "".join(capsys.readouterr())
    assert printed.count("node1 cannot be made again: the key is not on this machine") == 1
    assert "makes the lost machines again" not in printed


def test_nothing_else_of_the_cluster_is_changed(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.only_adds = False
    cloud.heal(WAITS)
    assert cloud.calls == []
    assert "cluster demo differs from its record" in "".join(capsys.readouterr())


def test_a_wait_that_is_over_makes_nothing(cloud: Cloud) -> None:
    cloud.first_pause_s = 60
    cloud.heal(WAITS, AttemptStarted(time=0, number=2))
    assert cloud.calls == []


def test_the_end_of_the_run_waits_for_what_is_being_made(cloud: Cloud) -> None:
    client = cloud.client()

    async def run() -> Any:
        client.see(WAITS)
        return "result"

    assert asyncio.run(client.during(run())) == "result"  # type: ignore[comparison-overlap]
    assert "healing" not in {thread.name for thread in threading.enumerate()}
    assert cloud.calls in ([], [*MADE, HEALED, QUEUED_HEALED])


def test_one_client_at_a_time_makes_nodes(cloud: Cloud) -> None:
    cloud.answers = ["taken", "taken", "held"]
    cloud.heal(WAITS)
    assert cloud.calls == [*MADE, HEALED, QUEUED_HEALED]


def test_nothing_is_made_while_somebody_removes_the_cluster(
    cloud: Cloud, capsys: pytest.CaptureFixture[str]
) -> None:
    cloud.answers = ["removes", "removes", "held"]  # the removal failed
    cloud.heal(WAITS)
    assert cloud.calls == [*MADE, HEALED, QUEUED_HEALED]
    said = "node1 cannot be made again: another gpuctl removes cluster demo\n"
    assert "".join(capsys.readouterr()).count(said) == 1


def test_a_node_that_a_run_goes_on_without_is_made_for_a_later_attempt(
    cloud: Cloud,
) -> None:
    node = RunNode(rank=0, name="node0", private_ip="10.0.0.1", role="master")
    cloud.heal(WAITS, AttemptStarted(time=0, number=2, nodes=(node,)))
    assert cloud.calls[0] == "up"
