"""The places of runs in the queue of their cluster."""

from collections.abc import Sequence
from dataclasses import dataclass

from engine.record.history import RunRecord
from engine.session.cluster_runs import Holder
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import find_runs
from operations.watcher import Watcher


@dataclass(frozen=True)
class QueuedRun:
    """A run on a cluster. `place` is its place in the queue, from 1; 0 if it has its nodes."""

    run: Holder
    place: int


def with_places(runs: Sequence[Holder]) -> tuple[QueuedRun, ...]:
    """Return the runs with their places: those that have their nodes first."""
    waiting = [run for run in runs if run.state == "waiting"]
    active = [QueuedRun(run, 0) for run in runs if run.state != "waiting"]
    return (*active, *(QueuedRun(run, place) for place, run in enumerate(waiting, 1)))


def queue_places(
    chosen: ChosenTarget, records: Sequence[RunRecord], watcher: Watcher
) -> dict[str, int]:
    """Return the places of the queued runs of `records`, as their clusters' heads know them.

    A run that has started since has the place 0. A head that does not answer is a warning.
    """
    places: dict[str, int] = {}
    for cluster in dict.fromkeys(run.cluster for run in records if run.status == "queued"):
        for queued in with_places(find_runs(chosen, cluster, watcher)):
            places[queued.run.run_id] = queued.place
    return places
