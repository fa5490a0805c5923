"""Clusters of machines that people have (`hosts`): what `up` writes on them, then to write it."""

import tempfile
from pathlib import Path

from config.cluster.hosts_file import HostsCluster
from config.errors import InputError
from nodes.inventory import Inventory
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import check_free
from operations.watcher import LoggingWatcher, Watcher
from provision.hosts import up as hosts_up
from provision.hosts.up import HostsPlan
from provision.state.store import ClusterStore

__all__ = ["HostsPlan", "Inventory"]


def plan(
    chosen: ChosenTarget,
    cluster: HostsCluster,
    *,
    accept_new_host_keys: bool = False,
    watcher: Watcher = LoggingWatcher(),
) -> HostsPlan:
    """Examine the machines, and return what `up` would write on them; write nothing.

    With `accept_new_host_keys` unknown host keys are in the plan: to carry it out accepts them.
    Raises NodeError with every problem of a machine at once, InputError if the name is another
    cluster's, or if a run is on the cluster.
    """
    if ClusterStore(chosen.remembered()).record(cluster.name) is not None:
        raise InputError(
            f"cluster '{cluster.name}' exists, and gpuctl rents it", "choose another `name`"
        )
    store = chosen.hosts_store()
    if store.hosts_record(cluster.name) is not None:
        reason = "`up` writes the nodes' files again"
        hint = "wait for its end (`gpuctl wait {run}`), or stop it (`gpuctl stop {run}`)"
        check_free(chosen, cluster.name, reason, hint, watcher)
    if not accept_new_host_keys:
        return hosts_up.plan(cluster, store, watcher.report)
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as folder:
        file = Path(folder) / "known_hosts"
        return hosts_up.plan(cluster, store, watcher.report, accept_new=file)


def up(
    chosen: ChosenTarget, hosts_plan: HostsPlan, *, watcher: Watcher = LoggingWatcher()
) -> Inventory:
    """Write on the machines what the plan says, and verify them as nodes.

    After a failure what was written stays; the error says how to remove it.
    """
    return hosts_up.up(hosts_plan, chosen.hosts_store(), watcher.report)
