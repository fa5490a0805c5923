"""The clusters that exist: what AWS has, compared with this machine's records."""

from config.errors import InputError
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from provision import status
from provision.state import record
from provision.status import ClusterStatus

__all__ = ["ClusterStatus", "Inventory", "cluster", "clusters", "inventory", "record_errors"]


def clusters(here: ChosenTarget) -> tuple[ClusterStatus, ...]:
    """Return every cluster in the target's region or in this machine's records, by name."""
    return () if here.is_lab_down() else status.clusters(here.target())


def cluster(here: ChosenTarget, name: str) -> tuple[ClusterStatus, ...]:
    """Return the clusters of that name; InputError if there is none, or in another account."""
    found = tuple(status for status in clusters(here) if status.name == name)
    if not found:
        raise InputError(f"no cluster '{name}' exists", "see `gpuctl status` for all")
    if found[0].state == "elsewhere":
        raise InputError(f"cluster '{name}': {found[0].problems[0]}", "")
    return found


def record_errors(here: ChosenTarget) -> tuple[InputError, ...]:
    """Return an error for each record of this machine that cannot be read."""
    return record.record_errors(here.remembered())


def inventory(here: ChosenTarget, name: str) -> Inventory:
    """Return the nodes of the cluster; InputError if it is not ready."""
    return record.load_inventory(name, here.cluster_target(name))
