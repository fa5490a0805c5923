"""What runs use of their nodes: now, as the heads know it, or all of a run that is over."""

import asyncio
from dataclasses import dataclass, replace

from config.command_text import command_text
from config.errors import InputError, NodeError
from config.event_loop import run_in_loop
from engine.analysis.metrics.live import LiveRun, live_runs
from engine.analysis.metrics.summary import NodeSummary, summaries
from engine.analysis.metrics.usage import IdleCost, idle_cost
from engine.record.metrics_record import recorded_samples
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.known import fetch_journal
from operations.run_search import find_run
from operations.watcher import LoggingWatcher, Watcher

__all__ = ["NodeSummary"]


@dataclass(frozen=True)
class ClusterUsage:
    """A cluster, a node's price in US dollars per hour, and the runs that its head names."""

    inventory: Inventory
    price_usd_h: float | None
    runs: tuple[LiveRun, ...] = ()

    def idle(self) -> list[IdleCost]:
        """Return the GPUs that are idle although a run has them."""
        costs = [
            idle_cost(
                run.nodes[usage.rank],
                [(gpu.gpu, gpu.idle_s) for gpu in usage.gpus],
                len(usage.gpus),
                self.price_usd_h,
            )
            for run in self.runs
            for usage in run.usages
        ]
        return [cost for cost in costs if cost is not None]


@dataclass(frozen=True)
class Watched:
    """The clusters to watch; `run_id` names a run if that alone is to be shown.

    Without clusters the run is over: `past_usage` has what it used.
    """

    clusters: tuple[ClusterUsage, ...]
    run_id: str | None = None


def find_watched(
    chosen: ChosenTarget, name: str | None = None, *, watcher: Watcher = LoggingWatcher()
) -> Watched:
    """Return what the name means: a cluster with all its runs, or a run; all clusters without one.

    InputError if there is no cluster that is ready.
    """
    if name is None:
        chosen.require_lab()
        known = chosen.cluster_names()
        clusters = [_cluster(chosen, each) for each in known]
        ready = tuple(cluster for cluster in clusters if cluster is not None)
        if not ready:
            raise InputError("no cluster is ready", "see `gpuctl status` for all")
        return Watched(ready)
    if name in chosen.cluster_names():
        cluster = _cluster(chosen, name)
        if cluster is None:
            raise InputError(
                f"cluster {name} is not ready", f"see {command_text('gpuctl status {}', name)}"
            )
        return Watched((cluster,))
    run = find_run(chosen, name, watcher=watcher)
    if run.is_over:
        fetch_journal(chosen, run, watcher)
        return Watched((), run.run_id)
    cluster = _cluster(chosen, run.cluster)
    if cluster is None:
        raise InputError(f"cluster {run.cluster} is not ready", "see `gpuctl status` for all")
    return Watched((cluster,), run.run_id)


def current_usage(
    watched: Watched, *, watcher: Watcher = LoggingWatcher()
) -> tuple[ClusterUsage, ...]:
    """Ask the heads what is used now; one of several that does not answer is a warning."""
    return run_in_loop(_ask(watched, watcher))


def past_usage(chosen: ChosenTarget, run_id: str) -> tuple[NodeSummary, ...]:
    """Return the means and peaks of a run that is over; InputError if there are no metrics."""
    nodes = summaries(recorded_samples(chosen.runs, run_id))
    if not nodes:
        raise InputError(
            f"run {run_id} is over, and this machine has no metrics of it",
            "`gpuctl run` and `gpuctl attach` keep them at a run's end",
        )
    return tuple(nodes)


def _cluster(chosen: ChosenTarget, cluster: str) -> ClusterUsage | None:
    """Return the cluster to watch; None if it is not ready."""
    try:
        store = chosen.cluster_store(cluster)
        inventory, record = store.inventory(cluster), store.record(cluster)
    except InputError:
        return None
    price = record.resolved.instance_type.price_usd_h if record else None
    return ClusterUsage(inventory, price)


async def _ask(watched: Watched, watcher: Watcher) -> tuple[ClusterUsage, ...]:
    questions = (live_runs(cluster.inventory, watched.run_id) for cluster in watched.clusters)
    answers = await asyncio.gather(*questions, return_exceptions=True)  # judged one by one below
    usages = []
    for cluster, answer in zip(watched.clusters, answers, strict=True):
        if not isinstance(answer, BaseException):
            usages.append(replace(cluster, runs=answer))
            continue
        if len(watched.clusters) == 1 or not isinstance(answer, NodeError):
            raise answer
        where = f"what cluster {cluster.inventory.cluster} uses is unknown"
        watcher.warn(f"{where}: {answer.message}")
        usages.append(cluster)
    return tuple(usages)
