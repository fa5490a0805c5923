"""Read runs that no client followed: before their cluster is removed, which has their logs."""

import asyncio
from collections.abc import Sequence
from datetime import datetime

from config.command_text import command_text
from config.errors import GpuctlError, InputError, StateError
from config.event_loop import run_in_loop
from engine.record.events import FirstEvent
from engine.record.history import History, RunRecord
from engine.record.journal_copy import recorded_events
from engine.record.outputs_folder import have_come_back, outputs_folder
from engine.session import session
from engine.session.following import Limits
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.watcher import Watcher
from provision.state.store import ClusterStore

FINISHED_S, RUNNING_S = 60.0, 3.0
"""Seconds to read a run's log: one that is over, and one that ends with its cluster."""


def read_finished(
    chosen: ChosenTarget, cluster: str, running: Sequence[str], watcher: Watcher
) -> tuple[str, ...]:
    """Read the logs and results of runs that have ended on the cluster with nobody there.

    Return a line for each run of this cluster that is over and has outputs that have not come back.
    A head that does not answer is a warning.
    """
    ended = [run for run in _runs_of(chosen, cluster, watcher) if run.run_id not in running]
    _read(chosen, cluster, [run for run in ended if not run.is_over], FINISHED_S, watcher)
    return tuple(line for run in ended for line in _missing_outputs(chosen, run))


def read_running(
    chosen: ChosenTarget, cluster: str, running: Sequence[str], watcher: Watcher
) -> None:
    """Read what runs have printed so far that end with the cluster."""
    known = [run for run in _runs_of(chosen, cluster, watcher) if run.run_id in running]
    _read(chosen, cluster, known, RUNNING_S, watcher)


def _runs_of(chosen: ChosenTarget, cluster: str, watcher: Watcher) -> list[RunRecord]:
    """Return the runs that this machine started on the cluster, none of an earlier cluster."""
    try:
        with History(chosen.runs) as history:
            runs = [run for run in history.runs() if run.cluster == cluster]
        created = _created(chosen, cluster) if runs else None
        return [run for run in runs if created and run.started >= created]
    except StateError as error:  # a full disk must not keep the cluster
        watcher.warn(f"whether runs were read to their end is unknown: {error.message}")
        return []


def _created(chosen: ChosenTarget, cluster: str) -> datetime | None:
    """Return when the cluster was created, rented or of hosts; None if it is not known."""
    hosts = chosen.hosts_store().hosts_record(cluster)
    record = hosts or ClusterStore(chosen.remembered()).last_known(cluster)
    return record.created if record else None


def _read(
    chosen: ChosenTarget, cluster: str, known: list[RunRecord], seconds: float, watcher: Watcher
) -> None:
    if not known:
        return
    try:
        inventory = chosen.cluster_store(cluster).inventory(cluster)
    except (InputError, StateError, ValueError):  # it never was ready, or its file is damaged
        return
    for run in known:
        try:
            run_in_loop(_follow(run, inventory, chosen, seconds))
        except TimeoutError:
            if seconds == FINISHED_S:
                watcher.warn(f"not all that run {run.run_id} printed came back in {seconds:.0f} s")
        except GpuctlError as error:
            watcher.warn(f"what run {run.run_id} printed last did not come back: {error.message}")
            return  # the head does not answer for others either


async def _follow(
    run: RunRecord, inventory: Inventory, chosen: ChosenTarget, seconds: float
) -> None:
    async with asyncio.timeout(seconds):
        limits = Limits(reconnect_s=0)
        await session.follow(run.run_id, inventory, chosen.runs, lambda _: None, limits)


def _missing_outputs(chosen: ChosenTarget, run: RunRecord) -> list[str]:
    started = next(recorded_events(chosen.runs, run.run_id), None)
    if not isinstance(started, FirstEvent) or not started.outputs:
        return []
    if have_come_back(outputs_folder(chosen.runs, run.run_id)):
        return []
    paths = ", ".join(started.outputs)
    return [
        f"outputs of run {run.run_id} ({paths}):"
        f" {command_text('gpuctl attach {}', run.run_id)} fetches them"
    ]
