"""The clusters that exist: what AWS has, compared with this machine's records."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from config.errors import GpuctlError, InputError, RunError, StateError
from engine.record.history import History, RunRecord
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.known import heard
from provision import status
from provision.hosts import status as hosts_status
from provision.state.store import ClusterStore
from provision.status import ClusterStatus

__all__ = ["ClusterStatus", "Inventory"]


@dataclass(frozen=True)
class LastRun:
    """The newest run on a cluster, and when this machine last heard of it; None if it is over."""

    record: RunRecord
    heard: datetime | None


@dataclass(frozen=True)
class Overview:
    """The clusters by name, and an error for each record that cannot be read.

    `last_runs` has the newest run on each cluster that this machine knows, by the cluster's name.
    """

    clusters: tuple[ClusterStatus, ...]
    record_errors: tuple[GpuctlError, ...]
    last_runs: Mapping[str, LastRun] = field(default_factory=dict)

    def named(self, name: str) -> tuple[ClusterStatus, ...]:
        """Return the clusters of that name; InputError if there is none, or in another account."""
        clusters = tuple(cluster for cluster in self.clusters if cluster.name == name)
        if not clusters:
            raise InputError(f"no cluster '{name}' exists", "see `gpuctl status` for all")
        if clusters[0].state == "elsewhere":
            raise InputError(f"cluster '{name}': {clusters[0].problems[0]}", "")
        return clusters


def overview(chosen: ChosenTarget, name: str | None = None) -> Overview:
    """Return every cluster in the target's region or in this machine's records.

    With the `name` of a cluster of hosts AWS is not asked. Where there are such clusters, an error
    of AWS is one among `record_errors`.
    """
    hosts_store = chosen.hosts_store()
    names = hosts_store.hosts_names()
    if name in names:
        return Overview((hosts_status.status_of(name, hosts_store),), (), _last_runs(chosen))
    hosts = tuple(hosts_status.status_of(each, hosts_store) for each in names)
    if hosts and not chosen.lab and chosen.aws_region() is None:
        return Overview(hosts, (), _last_runs(chosen))  # a person without AWS
    if chosen.is_lab_down():
        return Overview(hosts, ClusterStore(chosen.remembered()).errors())
    try:
        store = ClusterStore(chosen.target())
        rented = status.clusters(store)
    except GpuctlError as error:
        if not hosts:
            raise
        unasked = type(error)(f"rented clusters are not listed: {error.message}", error.hint)
        return Overview(hosts, (unasked,), _last_runs(chosen))
    every = sorted((*hosts, *rented), key=lambda cluster: cluster.name)
    return Overview(tuple(every), store.errors(), _last_runs(chosen))


def _last_runs(chosen: ChosenTarget) -> dict[str, LastRun]:
    """Return the newest run by cluster; none if the history cannot be read."""
    runs = chosen.runs
    try:
        with History(runs) as history:
            oldest_first = reversed(history.runs())
            return {run.cluster: LastRun(run, heard(runs, run)) for run in oldest_first}
    except (RunError, StateError):
        return {}


def clusters(chosen: ChosenTarget) -> tuple[ClusterStatus, ...]:
    """Return every cluster in the target's region or in this machine's records, by name."""
    return overview(chosen).clusters


def cluster(chosen: ChosenTarget, name: str) -> tuple[ClusterStatus, ...]:
    """Return the clusters of that name; InputError if there is none, or in another account."""
    return overview(chosen, name).named(name)


def inventory(chosen: ChosenTarget, name: str) -> Inventory:
    """Return the nodes of the cluster; InputError if it is not ready."""
    return chosen.cluster_store(name).inventory(name)
