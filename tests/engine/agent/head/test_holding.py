"""Locks of clients on the head, and what the head says of its runs; agents as processes."""

import asyncio
import json
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from config.errors import NodeError, RunError
from engine.agent.head.queue import Queue
from engine.contract.codec import to_json
from engine.contract.names import DOWN, HEALING, REMOVAL
from engine.contract.plan import RunOrder
from engine.session import head
from engine.session.bundle import agent_bundle
from engine.session.head import hold
from tests.connections import Connect, WithoutSsh
from tests.engine.agent.head.test_queue import holding
from tests.engine.conftest import make_inventory, make_plan
from tests.engine.session.test_session import LocalConnections

THERE = make_inventory(2)


@pytest.fixture
def runs(reach_nodes: Callable[[Connect], None]) -> Iterator[Path]:
    """The head's folder of runs, with one run that is over, and the agent that it had."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as root:
        folder = Path(root) / "runs" / "job-000001"
        folder.mkdir(parents=True)
        (folder / "agent.pyz").write_bytes(agent_bundle().data)

        reach_nodes(lambda _: LocalConnections(Path(root)))
        yield folder.parent


def start_holding(runs: Path, what: str) -> tuple[subprocess.Popen[str], str]:
    folder = str(runs / "job-000001")
    argv = [sys.executable, f"{folder}/agent.pyz", "hold", folder, what]
    process = subprocess.Popen(argv, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    assert process.stdout is not None
    return process, process.stdout.readline()


def test_no_run_begins_while_a_client_removes_the_cluster(runs: Path) -> None:
    queue = Queue(runs)
    process, answer = start_holding(runs, REMOVAL)
    assert answer == "held\n"
    (runs / "next").mkdir()
    assert queue.runs_in_the_way(("node0",)) == ("job-000001",)
    assert not queue.enter("next", ("node0",), may_wait=True)
    process.kill()  # its client died
    process.communicate()
    assert queue.runs_in_the_way(("node0",)) == ()
    assert queue.enter("next", ("node0",), may_wait=False)


def test_one_client_removes_and_other_runs_keep_the_cluster(runs: Path) -> None:
    with (
        hold("job-000001", THERE, REMOVAL) as first,
        hold("job-000001", THERE, REMOVAL) as second,
        hold("job-000001", THERE, HEALING) as other,
    ):
        assert (first, second, other) == ("held", "taken", "removes")
    with holding(runs / "other"):
        (runs / "queue").write_text("other waiting node1\n")
        with hold("job-000001", THERE, REMOVAL) as answer:
            assert answer == "busy"
    with hold("job-000001", THERE, REMOVAL) as answer:
        assert answer == "held"
        assert (runs / "queue").read_text() == "job-000001 leaving -\n"


def test_nobody_removes_the_cluster_while_its_nodes_are_made_again(runs: Path) -> None:
    with (
        hold("job-000001", THERE, HEALING) as first,
        hold("job-000001", THERE, HEALING) as second,
        hold("job-000001", THERE, REMOVAL) as removal,
        hold("job-000001", THERE, DOWN) as down,
    ):
        assert (first, second, removal, down) == ("held", "taken", "heals", "heals")
    with hold("job-000001", THERE, DOWN) as down, hold("job-000001", THERE, HEALING) as healing:
        assert (down, healing) == ("held", "removes")
    assert not (runs / "queue").exists(), "`down` ends the runs of the cluster"


def test_a_head_that_does_not_answer_gives_no_lock(
    runs: Path, reach_nodes: Callable[[Connect], None]
) -> None:
    with hold("gone-000002", THERE, REMOVAL) as answer:
        assert answer == ""

    class Refusing(WithoutSsh):
        async def enter(self) -> None:
            raise NodeError("node0: no route", "")

    reach_nodes(lambda _: Refusing())
    with hold("job-000001", THERE, REMOVAL) as answer:
        assert answer == ""

    class Hanging(WithoutSsh):
        async def enter(self) -> None:
            await asyncio.Event().wait()

    reach_nodes(lambda _: Hanging())
    with hold("job-000001", THERE, REMOVAL, 0.1) as answer:
        assert answer == ""


def test_the_head_has_the_plans_of_its_runs(
    runs: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("GPUCTL_RUNTIME_DIR", str(tmp_path))
    plan = make_plan(env={"TOKEN": {"secret": "T"}})
    run = to_json(RunOrder(plan, {"T": "geheim"}).without_common_texts())
    (tmp_path / "job-000001.json").write_text(json.dumps(run))
    found = asyncio.run(head.plans_of(["job-000001", "over-000002"], THERE))
    assert found == {"job-000001": plan}
    del run["plan"]["cluster_ips"]
    (tmp_path / "job-000001.json").write_text(json.dumps(run))
    with pytest.raises(RunError) as other:
        asyncio.run(head.plans_of(["job-000001"], THERE))
    expected = "another version of gpuctl started run job-000001; attach with that version"
    assert str(other.value) == expected
