"""The end of a run with `on_stop: destroy`: which client removes the cluster, and when."""

import asyncio
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path

import pytest

from config.target import Target
from engine.contract.names import HEALING, HELD, REMOVAL
from engine.session import head, session
from operations.chosen_target import ChosenTarget
from operations.teardown import removable
from operations.watcher import LoggingWatcher
from tests.cli.test_held import a_run
from tests.engine.session.test_session import INVENTORY, LocalConnections, job

pytestmark = pytest.mark.slow

HERE = ChosenTarget(region="us-east-1")


class Said(LoggingWatcher):
    """What a person is shown. The first note ends what `until_noted` holds."""

    def __init__(self) -> None:
        self.lines: list[str] = []
        self.until_noted = ExitStack()

    def note(self, text: str) -> None:
        self.lines.append(text)
        self.until_noted.close()

    def warn(self, text: str) -> None:
        self.lines.append(text)


@pytest.fixture
def over(cluster: Target, connections: LocalConnections, tmp_path: Path) -> Iterator[str]:
    """The id of a run that is over, on a cluster whose head is real."""
    plan = job("true")
    asyncio.run(session.run(plan, INVENTORY, tmp_path, lambda _: None))
    yield plan.run_id
    connections.end()


def test_a_cluster_that_another_client_removes_is_left_to_it(over: str) -> None:
    said = Said()
    with head.hold(over, INVENTORY, REMOVAL) as answer:
        assert answer == HELD
        with removable(HERE, over, INVENTORY, said) as may_remove:
            assert not may_remove
    assert said.lines == [
        "-- another gpuctl removes cluster demo: `gpuctl down demo` removes this machine's record"
        " of it"
    ]


def test_a_cluster_that_another_run_uses_stays(over: str, tmp_path: Path) -> None:
    said = Said()
    with a_run(tmp_path) as run, removable(HERE, over, INVENTORY, said) as may_remove:
        assert not may_remove
    assert said.lines == [f"cluster demo is not destroyed: {run}, started from another machine"]


def test_the_end_of_a_run_waits_for_a_client_that_makes_nodes(over: str) -> None:
    said = Said()
    said.until_noted.enter_context(head.hold(over, INVENTORY, HEALING))
    with removable(HERE, over, INVENTORY, said) as may_remove:
        assert may_remove
    assert said.lines == ["-- another gpuctl makes nodes of demo again: waiting for it"]
