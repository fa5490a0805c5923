"""The supervisor's process when something in it fails: who has the nodes afterwards."""

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.agent.head.queue import Queue
from engine.agent.head.supervisor_process import supervise_run
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.locks import create_folder
from engine.agent.link.control import SOCKET
from engine.agent.link.times import Times
from engine.contract.event import Event, change, to_line
from engine.contract.plan import RunOrder
from tests.engine.bare_events import FINISHED, QUEUED, STARTED
from tests.engine.conftest import LocalLauncher, make_plan, unpacked_agent


class Failing(LocalLauncher):
    """A launcher that fails to power nodes off, as without ssh on the head."""

    async def power_off(self) -> None:
        raise FileNotFoundError("ssh")


def supervise(folder: Path, launcher: LocalLauncher, **fields: Any) -> None:
    """Supervise a run of one node that powers its nodes off, as in its unit."""
    plan = make_plan(nodes=1, on_stop="destroy", **{"commands": ("echo done",), **fields})
    (node,) = plan.nodes
    environment = {**node.environment, "GPUCTL_CHECKPOINT_DIR": str(folder / "checkpoints")}
    plan = replace(plan, nodes=(replace(node, files={}, environment=environment),))
    supervise_run(folder, RunOrder(plan, {}), unpacked_agent(), launcher, Times(acknowledge_s=0))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "runs" / "job-000001"
    create_folder(folder)
    (folder / "agent.pyz").symlink_to(unpacked_agent())
    assert Queue(folder.parent).enter(folder.name, ("node0",), may_wait=False)
    return folder


def kinds(folder: Path) -> list[str]:
    return [json.loads(line)["kind"] for line in (folder / JOURNAL).read_bytes().splitlines()]


def test_a_run_whose_nodes_cannot_be_powered_off_frees_them_and_is_reported(folder: Path) -> None:
    launcher = Failing(folder, folder / "agent.pyz")
    target = {"command": f"echo $GPUCTL_EVENT >> {folder}/notified", "on": ("end",)}
    with pytest.raises(FileNotFoundError, match="ssh"):
        supervise(folder, launcher, notify=(target,))
    assert "run_finished" in kinds(folder)
    assert (folder.parent / "queue").read_text() == ""
    assert kinds(folder)[-2:] == ["notified", "notifications_ended"]
    assert (folder / "notified").read_text() == "end\n"
    assert not (folder / SOCKET).exists()


def test_a_run_that_goes_on_keeps_its_nodes_when_its_supervisor_fails(folder: Path) -> None:
    """Its workers go on, and the next supervisor takes the run up."""

    class Broken(LocalLauncher):
        def replace_addresses(self, ips: tuple[str, ...], cluster_ips: tuple[str, ...]) -> None:
            raise ZeroDivisionError  # at the beginning of the second attempt

    with pytest.raises(ZeroDivisionError):
        launcher = Broken(folder, folder / "agent.pyz")
        supervise(folder, launcher, commands=("exit 1",), retry={"backoff": "1s"})
    assert "run_finished" not in kinds(folder)
    assert (folder.parent / "queue").read_text() == "job-000001 started node0\n"


def test_a_run_that_is_dropped_from_the_queue_leaves_nothing_in_it(folder: Path) -> None:
    Queue(folder.parent).leave(folder.name)
    supervise(folder, LocalLauncher(folder, folder / "agent.pyz"))
    assert kinds(folder)[-1] == "run_finished"
    assert (folder.parent / "queue").read_text() == ""


@pytest.mark.parametrize(("first", "is_off"), [(QUEUED, False), (STARTED, True)])
def test_a_run_that_is_over_powers_its_nodes_off_unless_it_left_the_queue(
    folder: Path, first: Event, is_off: bool
) -> None:
    """The next supervisor of a run that never had its nodes leaves them alone."""
    events = (change(first, time=1.0), change(FINISHED, time=2.0))
    (folder / JOURNAL).write_text("".join(f"{to_line(event)}\n" for event in events))
    launcher = LocalLauncher(folder, folder / "agent.pyz")
    supervise(folder, launcher)
    assert launcher.powered_off is is_off
    assert (folder.parent / "queue").read_text() == ""
