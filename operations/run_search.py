"""Find a run that a caller names: in the history, in a team's bucket, else on the heads."""

import asyncio

from config.command_text import command_text
from config.errors import GpuctlError, InputError, NodeError
from config.event_loop import run_in_loop
from engine.record.events import FirstEvent
from engine.record.history import History, RunRecord
from engine.session import head
from engine.session.cluster_runs import ASK_S
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.known import recorded_run
from operations.lost_head import mark_replaced
from operations.watcher import LoggingWatcher, Watcher

_Found = tuple[Inventory, FirstEvent]
"""A run on a head, by its first event, and the inventory of its cluster."""


def find_run(chosen: ChosenTarget, name: str, *, watcher: Watcher = LoggingWatcher()) -> RunRecord:
    """Return the run with this id, else the newest with this name.

    A run has failed if its cluster has other machines now (`mark_replaced`). If neither this
    machine's history nor the team's bucket has the run, ask the heads of the clusters that this
    machine has a record of, and add the run to the history. Raises InputError if nobody knows it.
    """
    runs = chosen.runs
    try:
        record = recorded_run(chosen, name, watcher=watcher)
    except InputError:
        answer = _ask_heads(chosen, name, watcher)
        if answer is None:
            raise
        inventory, run = answer
        with History(runs) as history:
            history.begin(run, head_id=inventory.nodes[0].instance_id)
            return history.find(run.run_id)
    with History(runs) as history:
        return history.find(record.run_id) if mark_replaced(chosen, [record]) else record


def find_run_with_cluster(
    chosen: ChosenTarget, name: str, *, watcher: Watcher = LoggingWatcher()
) -> tuple[RunRecord, Inventory | None]:
    """Return the run as `find_run` does, and its cluster's inventory, None if the run is over."""
    record = find_run(chosen, name, watcher=watcher)
    if record.is_over:
        return record, None
    return record, chosen.cluster_store(record.cluster).inventory(record.cluster)


def _ask_heads(chosen: ChosenTarget, name: str, watcher: Watcher) -> _Found | None:
    """Return the run of that id or name, and its cluster's inventory.

    Of the runs of one head it is the newest with the name. Raises InputError if several heads have
    one: a job is root on its head, so a newer time proves nothing. A head that does not answer is
    a warning.
    """
    if chosen.is_lab_down():
        return None
    inventories = _inventories(chosen)

    async def ask() -> list[FirstEvent | GpuctlError | None]:
        return await asyncio.gather(*(_ask(inventory, name) for inventory in inventories))

    runs: list[_Found] = []
    for inventory, answer in zip(inventories, run_in_loop(ask()), strict=True):
        if isinstance(answer, GpuctlError):
            where = f"whether cluster {inventory.cluster} has a run {name} is unknown"
            watcher.warn(f"{where}: {answer.message}")
        elif answer is not None:
            runs.append((inventory, answer))
    if len(runs) > 1:
        raise _claimed_twice(name, runs)
    return runs[0] if runs else None


def _claimed_twice(name: str, runs: list[_Found]) -> InputError:
    """Return the error for a run that several clusters claim to have."""
    claims = " and ".join(f"{run.run_id} on cluster {inventory.cluster}" for inventory, run in runs)
    ids = list(dict.fromkeys(run.run_id for _, run in runs))
    if len(ids) == len(runs):
        return InputError(
            f"several clusters have a run {name}: {claims}",
            "name the run by its id: " + " or ".join(ids),
        )
    queues = " and ".join(
        f"{command_text('gpuctl queue {}', inventory.cluster)}" for inventory, _ in runs
    )
    return InputError(
        f"several clusters claim the same run: {claims}",
        f"an id belongs to one run, so one of the heads is wrong; {queues} show their runs",
    )


async def _ask(inventory: Inventory, name: str) -> FirstEvent | GpuctlError | None:
    try:
        async with asyncio.timeout(ASK_S):
            return await head.find_run(inventory, name)
    except TimeoutError:
        return NodeError(f"its head did not answer within {ASK_S:.0f} s", "")
    except GpuctlError as error:
        return error


def _inventories(chosen: ChosenTarget) -> list[Inventory]:
    """Return the inventories of the clusters that are ready."""
    inventories = []
    for name in chosen.cluster_names():
        try:
            inventories.append(chosen.cluster_store(name).inventory(name))
        except InputError:  # it is not ready, so it has no run
            continue
    return inventories
