"""Runs that nobody followed, before their cluster is removed: agents are real."""

import asyncio
from datetime import UTC, datetime
from pathlib import Path

import pytest

from config.cluster.hosts_file import Host, HostsCluster
from config.loading.load import load_run
from config.polling import Timeouts, poll
from config.target import Target
from engine.contract.worker_events import Output
from engine.record.history import RunRecord
from engine.record.journal_copy import recorded_events
from engine.session.cluster_runs import find_holders
from nodes.inventory import OWN_MACHINES
from operations import known, prepared_run, release, runs
from operations.unread_runs import read_running
from provision.state.record import new_hosts_record
from provision.state.store import ClusterStore
from tests.engine.session.test_session import LocalConnections, connections  # noqa: F401
from tests.operations.test_clusters import HERE, Notes

pytestmark = pytest.mark.slow


@pytest.fixture(params=["rented", "hosts"])
def ready(cluster: Target, request: pytest.FixtureRequest) -> Target:
    """Two nodes whose commands run here, rented or of machines that somebody has."""
    if request.param == "rented":
        return cluster
    inventory = ClusterStore(cluster).inventory("demo")
    ClusterStore(cluster).forget("demo")
    store = HERE.hosts_store()
    file = HostsCluster(name="demo", hosts=(Host(address="127.0.0.[10-11]"),))
    store.write_hosts(new_hosts_record(file, "aaaa", datetime.now(UTC)).now("ready"))
    own = {"instance_type": OWN_MACHINES, "folder": store.folder("demo")}
    store.save_inventory(inventory.model_copy(update=own))
    return cluster


def start(folder: Path, command: str) -> RunRecord:
    """Start a run with the output `result`, and leave it alone.

    It has one node: two would share the working folder, as both are this machine.
    """
    file = folder / "run.yaml"
    file.write_text(
        f"type: task\nname: job\nnodes: 1\ncommands: ['{command}']\noutputs: [result]\n"
    )
    prepared = prepared_run.prepare(HERE, load_run(file), file)
    runs.start(HERE, runs.make_ready(HERE, prepared, check_nodes=False))
    return known.newest_run(HERE)


def wait_until_it_is_over() -> None:
    """Wait until the run has ended on its head, of which no client hears."""
    inventory = HERE.cluster_store("demo").inventory("demo")
    assert poll(lambda: not asyncio.run(find_holders(inventory)) or None, Timeouts(60, 0.1))


def printed(cluster: Target, run_id: str) -> set[str]:
    """What this machine has of the run's output."""
    events = recorded_events(cluster.runs, run_id)
    return {event.text for event in events if isinstance(event, Output)}


def test_log_and_result_of_a_run_that_ended_alone_are_kept_and_its_outputs_are_named(
    ready: Target, tmp_path: Path
) -> None:
    run = start(tmp_path, "echo hi; echo kept > result; exit 3")
    wait_until_it_is_over()
    assert not known.recorded_run(HERE, run.run_id).is_over
    planned = release.plan_removal(HERE, "demo")
    assert (planned.runs, planned.occupancy) == ((), "")
    assert planned.outputs == (
        f"outputs of run {run.run_id} (result): `gpuctl attach {run.run_id}` fetches them",
    )
    ended = known.recorded_run(HERE, run.run_id)
    assert (ended.status, ended.exit_code) == ("failed", 3)
    assert printed(ready, run.run_id) == {"hi"}
    # It is over for this machine too, so what is left is what `attach` fetches.
    assert release.plan_removal(HERE, "demo").outputs == planned.outputs


def test_what_a_run_has_printed_is_kept_when_it_ends_with_its_cluster(
    ready: Target, tmp_path: Path
) -> None:
    up = tmp_path / "up"
    run = start(tmp_path, f"echo up; touch {up}; sleep 1000")
    assert poll(lambda: up.exists() or None, Timeouts(60, 0.1))
    planned = release.plan_removal(HERE, "demo")
    assert ([holder.run_id for holder in planned.runs], planned.outputs) == ([run.run_id], ())
    read_running(HERE, "demo", [run.run_id], Notes())
    assert printed(ready, run.run_id) == {"up"}
    runs.stop(HERE, "job")


def test_a_head_that_does_not_answer_is_a_warning(
    cluster: Target,
    tmp_path: Path,
    connections: LocalConnections,  # noqa: F811
) -> None:
    run = start(tmp_path, "true")
    wait_until_it_is_over()
    connections.cut_after, connections.stays_cut = 0, True
    notes = Notes()
    assert release.plan_removal(HERE, "demo", watcher=notes).outputs == ()
    assert notes.warnings == [
        f"what run {run.run_id} printed last did not come back: the head does not answer: node0:"
        " the connection was lost"
    ]
