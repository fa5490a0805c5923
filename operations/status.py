"""The clusters that exist: what AWS has, compared with this machine's records."""

from dataclasses import dataclass

from config.errors import InputError
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from provision import status
from provision.state.store import ClusterStore
from provision.status import ClusterStatus

__all__ = ["ClusterStatus", "Inventory", "Overview", "cluster", "clusters", "inventory", "overview"]


@dataclass(frozen=True)
class Overview:
    """The clusters by name, and an error for each record that cannot be read."""

    clusters: tuple[ClusterStatus, ...]
    record_errors: tuple[InputError, ...]

    def named(self, name: str) -> tuple[ClusterStatus, ...]:
        """Return the clusters of that name; InputError if there is none, or in another account."""
        clusters = tuple(cluster for cluster in self.clusters if cluster.name == name)
        if not clusters:
            raise InputError(f"no cluster '{name}' exists", "see `gpuctl status` for all")
        if clusters[0].state == "elsewhere":
            raise InputError(f"cluster '{name}': {clusters[0].problems[0]}", "")
        return clusters


def overview(chosen: ChosenTarget) -> Overview:
    """Return every cluster in the target's region or in this machine's records."""
    if chosen.is_lab_down():
        return Overview((), ClusterStore(chosen.remembered()).errors())
    store = ClusterStore(chosen.target())
    return Overview(status.clusters(store), store.errors())


def clusters(chosen: ChosenTarget) -> tuple[ClusterStatus, ...]:
    """Return every cluster in the target's region or in this machine's records, by name."""
    return overview(chosen).clusters


def cluster(chosen: ChosenTarget, name: str) -> tuple[ClusterStatus, ...]:
    """Return the clusters of that name; InputError if there is none, or in another account."""
    return overview(chosen).named(name)


def inventory(chosen: ChosenTarget, name: str) -> Inventory:
    """Return the nodes of the cluster; InputError if it is not ready."""
    return chosen.cluster_store(name).inventory(name)
