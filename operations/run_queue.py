"""The runs on a cluster, and the order of those that wait for its nodes."""

from dataclasses import dataclass

from config.command_text import command_text
from config.errors import InputError
from config.event_loop import run_in_loop
from config.run.run_file import Run
from engine.plan.modes.job import node_range
from engine.record.history import RunRecord
from engine.record.result import RunResult
from engine.session import cluster_runs, session
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.queue_places import QueuedRun, with_places
from operations.run_search import find_run_with_cluster
from operations.watcher import LoggingWatcher, Watcher


@dataclass(frozen=True)
class Queue:
    """The runs on a cluster: those that have their nodes, then those that wait, in their order."""

    cluster: str
    runs: tuple[QueuedRun, ...]


def queue(chosen: ChosenTarget, cluster: str) -> Queue:
    """Return the runs on the cluster, as its head knows them."""
    return _queue(chosen.cluster_store(cluster).inventory(cluster))


def move(
    chosen: ChosenTarget, name: str, place: int, *, watcher: Watcher = LoggingWatcher()
) -> Queue:
    """Give a run that waits another place, from 1; return the queue. InputError if it does not."""
    run, inventory = _waiting_run(chosen, name, watcher)
    if not run_in_loop(cluster_runs.move_run(run.run_id, inventory, place)):
        raise _not_waiting(run.run_id)
    return _queue(inventory)


def drop(chosen: ChosenTarget, name: str, *, watcher: Watcher = LoggingWatcher()) -> RunResult:
    """Take a run out of the queue; it ends as stopped. InputError if it does not wait there."""
    run, inventory = _waiting_run(chosen, name, watcher)
    if not run_in_loop(cluster_runs.drop_run(run.run_id, inventory)):
        raise _not_waiting(run.run_id)
    return run_in_loop(session.follow(run.run_id, inventory, chosen.runs, lambda _: None))


def current_load(run: Run, inventory: Inventory) -> dict[str, int]:
    """Return the nodes that other runs use now; do not ask if the run needs the whole cluster."""
    if node_range(run)[1] >= len(inventory.nodes):
        return {}
    return cluster_runs.node_load(run_in_loop(cluster_runs.find_holders(inventory)))


def _waiting_run(chosen: ChosenTarget, name: str, watcher: Watcher) -> tuple[RunRecord, Inventory]:
    """Return the run's record and its cluster's inventory; InputError for a run that is over.

    Another machine may have started it.
    """
    record, inventory = find_run_with_cluster(chosen, name, watcher=watcher)
    if inventory is None:
        raise _not_waiting(record.run_id)
    return record, inventory


def _not_waiting(run_id: str) -> InputError:
    return InputError(
        f"run {run_id} does not wait in a queue",
        "`gpuctl ps` shows its status,"
        f" {command_text('gpuctl stop {}', run_id)} ends it if it runs",
    )


def _queue(inventory: Inventory) -> Queue:
    return Queue(inventory.cluster, with_places(run_in_loop(cluster_runs.find_holders(inventory))))
