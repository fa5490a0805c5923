"""What a run leaves in the shared storage if no client follows it when its nodes power off."""

import asyncio
from asyncio.subprocess import PIPE, Process
from collections.abc import Callable, Coroutine
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from engine.agent.head.supervisor import Supervisor
from engine.agent.link.times import Times
from engine.contract.head_events import RunFinished, RunStarted
from engine.contract.names import NOT_SAVED
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import launch_plan
from engine.record.journal_copy import recorded_events
from tests.engine.conftest import LocalCluster, make_inventory, make_plan, make_run
from tests.engine.machines import wait_for

pytestmark = pytest.mark.slow

COMMANDS = (
    "mkdir -p out/step && echo $GPUCTL_NODE_RANK > out/step/model && ln -s step/model out/newest",
    "chmod 4750 out/step/model; echo hello $GPUCTL_NODE_RANK",
)


@pytest.fixture(autouse=True)
def _impatient(cluster: LocalCluster) -> None:
    cluster.times = Times(acknowledge_s=0.1, lease_s=3)


def saving_plan(saved: Path, **fields: Any) -> LaunchPlan:
    fields = {"outputs": ("out/", "*.json"), "on_stop": "destroy", "commands": COMMANDS, **fields}
    return replace(make_plan(**fields), saved=str(saved))


def end(
    cluster: LocalCluster,
    plan: LaunchPlan,
    then: Callable[[Supervisor], Coroutine[Any, Any, None]] = Supervisor.power_off_unattended,
) -> None:
    """Run the plan to its end, and then what comes after it."""

    async def run() -> None:
        supervisor = cluster.supervisor(plan)
        assert (await supervisor.run()).status == "done"
        await then(supervisor)

    asyncio.run(run())
    assert cluster.launcher.powered_off


def files(folder: Path) -> dict[str, str]:
    """The text of each file of the folder, and where each link leads."""
    return {
        str(path.relative_to(folder)): str(path.readlink())
        if path.is_symlink()
        else path.read_text()
        for path in folder.rglob("*")
        if path.is_symlink() or not path.is_dir()
    }


def test_log_metrics_and_outputs_are_saved_before_the_nodes_power_off(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    saved = tmp_path / "shared" / "job-000001"
    end(cluster, saving_plan(saved))
    found = files(saved)
    journal = found.pop("journal.jsonl")
    assert found.pop("metrics.jsonl").startswith('{"rank":')
    assert found == {
        "rank-0.log": "hello 0\n",
        "rank-1.log": "hello 1\n",
        "outputs/rank-0/out/step/model": "0\n",
        "outputs/rank-0/out/newest": "step/model",
        "outputs/rank-1/out/step/model": "1\n",
        "outputs/rank-1/out/newest": "step/model",
    }
    assert (saved / "outputs/rank-0/out/step/model").stat().st_mode & 0o7777 == 0o750
    assert saved.stat().st_mode & 0o777 == 0o700
    assert journal.splitlines()[-1].startswith('{"kind": "run_finished"')
    # A client reads it as its own copy.
    started, *_, finished = recorded_events(saved.parent, "job-000001")
    assert isinstance(started, RunStarted)
    assert started.saved == str(saved)
    assert isinstance(finished, RunFinished)
    assert finished.status == "done"


def test_nothing_is_saved_while_a_client_destroys_the_cluster(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    async def destroy_and_die(supervisor: Supervisor) -> None:
        supervisor.acknowledge()
        ending = asyncio.ensure_future(supervisor.power_off_unattended())
        for _ in range(3):
            await asyncio.sleep(0.5)
            assert not (tmp_path / "saved").exists()
            supervisor.acknowledge()
        await ending

    end(cluster, saving_plan(tmp_path / "saved"), destroy_and_die)
    assert "rank-1.log" in files(tmp_path / "saved")


def test_a_client_that_comes_while_it_saves_can_destroy_the_cluster(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    supervisors: list[Supervisor] = []

    async def save_later(rank: int | None) -> Process:
        supervisors[0].acknowledge()
        return await cluster.launcher.start_saving(rank)

    cluster.launcher.saves = save_later

    async def power_off(supervisor: Supervisor) -> None:
        supervisors.append(supervisor)
        ending = asyncio.ensure_future(supervisor.power_off_unattended())
        await asyncio.to_thread(wait_for, (tmp_path / "saved" / "journal.jsonl").exists, 60)
        supervisor.acknowledge()
        await asyncio.sleep(0.5)
        assert not cluster.launcher.powered_off
        await ending

    end(cluster, saving_plan(tmp_path / "saved", nodes=1), power_off)


def test_a_node_that_cannot_save_does_not_keep_the_others_from_it(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    error = "ssh: connect to host 10.213.1.11 port 22: No route to host"

    async def save_badly(rank: int | None) -> Process:
        if rank == 1:
            return await shell(f"echo {error} >&2; exit 255")
        return await cluster.launcher.start_saving(rank)

    cluster.launcher.saves = save_badly
    end(cluster, saving_plan(tmp_path / "saved"))
    found = files(tmp_path / "saved")
    assert found["not-saved.txt"] == f"node1: {error}\n"
    assert found["rank-0.log"] == "hello 0\n"
    assert "journal.jsonl" in found


def test_a_node_that_hangs_does_not_keep_the_nodes(cluster: LocalCluster, tmp_path: Path) -> None:
    async def hang(rank: int | None) -> Process:
        assert rank in (0, None)
        return await shell("exec sleep 1000")

    cluster.launcher.saves = hang
    cluster.times = Times(acknowledge_s=0.1, save_s=0.5)
    end(cluster, saving_plan(tmp_path / "saved", nodes=1))
    assert (cluster.folder / NOT_SAVED).read_text() == ("node0: not done within 0.5 s\n")


async def shell(command: str) -> Process:
    return await asyncio.create_subprocess_exec(
        "sh", "-c", command, stdin=PIPE, stdout=PIPE, stderr=PIPE
    )


def test_a_storage_that_takes_nothing_does_not_keep_the_nodes(
    cluster: LocalCluster, tmp_path: Path
) -> None:
    (tmp_path / "shared").write_text("not a folder")
    end(cluster, saving_plan(tmp_path / "shared" / "job-000001", nodes=1))
    assert (cluster.folder / NOT_SAVED).read_text() == (
        "node0: rank-0.log: Not a directory (and 4 more)\n"
    )


@pytest.mark.parametrize(
    ("on_stop", "shared", "saved"),
    [
        ("destroy", "/data", "/data/gpuctl/saved/job-000001"),
        ("destroy", "", ""),
        ("keep", "/data", ""),
    ],
)
def test_only_a_run_that_ends_its_cluster_saves_and_only_to_shared_storage(
    on_stop: str, shared: str, saved: str
) -> None:
    inventory = make_inventory(2).model_copy(update={"shared": shared})
    assert launch_plan(make_run(on_stop=on_stop), inventory, "job-000001").saved == saved
