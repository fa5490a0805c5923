"""The lease of a cluster: the time after which it ends by itself."""

from config.cluster.cluster_file import Cluster, Lifetime
from config.command_text import command_text
from config.errors import InputError
from config.settings import settings
from operations.chosen_target import ChosenTarget
from provision import lease
from provision.lease import Extension
from provision.state.store import ClusterStore

__all__ = ["Extension"]


def with_lifetime(chosen: ChosenTarget, cluster: Cluster) -> Cluster:
    """Return a cluster whose file has no lifetime with that of the user's settings.

    A cluster that exists keeps what it has: its machines were launched with it.
    """
    if cluster.lifetime is not None:
        return cluster
    before = ClusterStore(chosen.remembered()).record(cluster.name)
    if before is not None:
        kept = before.resolved.cluster.lifetime
        return cluster if kept is None else cluster.model_copy(update={"lifetime": kept})
    seconds = settings()["lifetime"].value
    return cluster if seconds is None else with_end_after(cluster, seconds)


def without_lease(cluster: Cluster) -> Cluster:
    """Return the cluster as it is, which has no end; InputError if its file sets one."""
    if cluster.lifetime is not None:
        raise InputError(
            f"--no-lease contradicts `lifetime` in the file of cluster {cluster.name}",
            "remove one of them",
        )
    return cluster


def is_new_without_end(chosen: ChosenTarget, cluster: Cluster) -> bool:
    """Return whether `up` would create the cluster, and it would end only with `down`."""
    return (
        cluster.lifetime is None and ClusterStore(chosen.remembered()).record(cluster.name) is None
    )


def with_end_after(cluster: Cluster, seconds: int) -> Cluster:
    """Return the cluster with a lease of so many seconds."""
    return cluster.model_copy(update={"lifetime": Lifetime.model_construct(max=seconds)})


def extend(chosen: ChosenTarget, cluster: str, seconds: int) -> Extension:
    """Move the end of the cluster's lease by `seconds` on all its machines, and record it.

    Nothing changes if one of them does not answer. Raises InputError for a cluster without a lease
    or over its budget, NodeError if a machine cannot be reached or keeps its old end.
    """
    instead = (
        f"it has no end: {command_text('gpuctl down {}', cluster)} removes what gpuctl wrote there"
    )
    return lease.extend(cluster, seconds, chosen.cluster_target(cluster, instead=instead))
