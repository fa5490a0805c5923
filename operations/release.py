"""Give a cluster back: everything of it is removed, whatever state it is in."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from config.command_text import command_text
from config.errors import CloudError, InputError, NodeError, RunError, StateError
from engine.record.history import History
from engine.session.cluster_runs import Holder
from nodes import dial
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import find_runs, occupancy_text, prevent_healing
from operations.unread_runs import read_finished, read_running
from operations.watcher import LoggingWatcher, Watcher
from provision import down as removal
from provision.down import Teardown
from provision.hosts import down as hosts_removal
from provision.hosts.people import other_people
from provision.removal.losses import Losses, find_losses
from provision.removal.verification import Verification
from provision.removal.verification import verify as verify_removal
from provision.state.ownership import Ownership, find_ownership
from provision.state.store import ClusterStore

__all__ = ["Losses", "Ownership", "Teardown", "Verification"]


@dataclass(frozen=True)
class Removal:
    """The removal of a cluster, before it is carried out.

    `cluster_id` chooses one of several clusters of that name; None is this machine's, or the only
    one. `runs` end with the cluster; `occupancy` is the sentence about them, empty without runs.
    `outputs` has a line for each run that is over and whose outputs have not come back.
    `hosts` are the machines of a cluster that gpuctl does not rent: they stay. While `others` use
    such a cluster, its runs go on, and this person's access alone is removed.
    """

    cluster: str
    cluster_id: str | None = None
    runs: tuple[Holder, ...] = ()
    occupancy: str = ""
    outputs: tuple[str, ...] = ()
    hosts: tuple[str, ...] = ()
    others: tuple[str, ...] = ()


def plan_removal(
    chosen: ChosenTarget,
    cluster: str,
    *,
    cluster_id: str | None = None,
    watcher: Watcher = LoggingWatcher(),
) -> Removal:
    """Return what a removal of the cluster would end; the cluster's head is asked for its runs.

    Logs and results of those that have ended with nobody there come to this machine.
    """
    hosts = chosen.hosts_store().hosts_record(cluster)
    if hosts is None:
        chosen.require_lab()
    elif cluster_id is not None:
        raise InputError(f"--id is for rented clusters, and {cluster} is not one", "leave it out")
    if cluster_id is not None:
        record = ClusterStore(chosen.remembered()).last_known(cluster)
        if record is None or record.id != cluster_id:
            # Another person's cluster of that name: its head is unknown here.
            return Removal(cluster, cluster_id)
    runs = find_runs(chosen, cluster, watcher)
    others = _other_people(chosen, cluster, runs) if hosts else ()
    outputs = read_finished(chosen, cluster, [run.run_id for run in runs], watcher)
    machines = tuple(host.address for host in hosts.file.machines) if hosts else ()
    if others:
        return Removal(cluster, outputs=outputs, hosts=machines, others=others)
    occupancy = occupancy_text(chosen, cluster, runs)
    return Removal(cluster, cluster_id, runs, occupancy, outputs, machines)


def _other_people(chosen: ChosenTarget, cluster: str, runs: Sequence[Holder]) -> tuple[str, ...]:
    """Return who else uses the cluster; InputError if a run of this person would go on alone."""
    try:
        others = other_people(chosen.hosts_store().whole_inventory(cluster))
    except (InputError, NodeError):
        return ()  # it never was ready, or there is no key: then `down` removes all
    with History(chosen.runs) as history:
        ours = {run.run_id for run in history.runs()}
    for run in runs:
        if others and run.run_id in ours:
            raise InputError(
                f"run {run.run_id} is on cluster {cluster}, which {', '.join(others)} uses too",
                f"{command_text('gpuctl stop {}', run.run_id)} ends it; or wait for its end",
            )
    return others


def losses(
    chosen: ChosenTarget, planned: Removal, *, watcher: Watcher = LoggingWatcher()
) -> Losses | None:
    """Return the cluster, its data, and the resources that stay; None if AWS has no such cluster.

    An error of AWS is a warning: the removal itself reports it.
    """
    if planned.hosts:
        return None
    try:
        target = chosen.cluster_store(planned.cluster).target
        return find_losses(planned.cluster, target, planned.cluster_id)
    except CloudError as error:
        watcher.warn(f"what the removal ends is unknown: {error.message}")
        return None


def check_owner(
    chosen: ChosenTarget, cluster: str, *, cluster_id: str | None = None, owner: str | None = None
) -> Ownership | None:
    """Return whose cluster it is if somebody has to agree to its removal, else None.

    Nobody has to if it is this caller's, or if `owner` names its owner. Raises InputError if
    `owner` is not the cluster's.
    """
    store = chosen.cluster_store(cluster)
    if store.hosts_record(cluster) is not None:
        return None
    ownership = find_ownership(cluster, store.target, cluster_id)
    if ownership is None or (ownership.is_ours and owner is None):
        return None
    if owner is None:
        return ownership
    if owner != ownership.owner:
        raise InputError(
            f"cluster '{cluster}' (id {ownership.id or 'none'}) {ownership.text}, not to {owner}",
            f"write {shlex.join(['--owner', ownership.owner])} if that is the one you mean",
        )
    return None


def down(
    chosen: ChosenTarget, planned: Removal, *, watcher: Watcher = LoggingWatcher()
) -> Teardown:
    """Remove everything of the cluster; its runs that were still going on are recorded as failed.

    InputError while a client makes the cluster's lost nodes again.
    """
    read_running(chosen, planned.cluster, [run.run_id for run in planned.runs], watcher)
    with prevent_healing(chosen, planned.cluster, planned.runs):
        done = remove(chosen, planned.cluster, cluster_id=planned.cluster_id, watcher=watcher)
        return replace(done, others=planned.others)


def remove(
    chosen: ChosenTarget,
    cluster: str,
    *,
    cluster_id: str | None = None,
    watcher: Watcher = LoggingWatcher(),
) -> Teardown:
    """Remove the cluster, whoever may use it; record the runs that were still on it as failed."""
    store = chosen.cluster_store(cluster)
    target = store.target
    dial.end(str(target.clusters / cluster))
    hosts = store.hosts_record(cluster)
    if hosts is not None:
        removed = hosts_removal.down(hosts, store, watcher.report)
        up_s = (datetime.now(UTC) - hosts.created).total_seconds()
        teardown = Teardown(cluster, removed, up_s, cost_usd=None, id=hosts.id, is_of_hosts=True)
    else:
        teardown = removal.down(cluster, target, watcher.report, cluster_id)
        if ClusterStore(target).last_known(cluster) is not None:
            return teardown  # another person's was removed: this machine's and its runs stay
    try:
        with History(chosen.runs) as history:
            for run in history.runs():
                if run.cluster == cluster and not run.is_over:
                    history.mark_lost(run.run_id, "its cluster was removed")
    except (StateError, RunError) as error:  # a full disk: the cluster is gone, its runs stay
        return replace(teardown, warnings=(*teardown.warnings, str(error)))
    return teardown


def remove_failed(
    chosen: ChosenTarget, cluster: str, *, watcher: Watcher = LoggingWatcher()
) -> Teardown | None:
    """Remove the cluster if its last `up` failed; return None if it did not.

    Another outcome is that of another client, which has the cluster.
    """
    record = chosen.cluster_store(cluster).last_known(cluster)
    if record is None or record.status != "failed":
        return None
    return remove(chosen, cluster, watcher=watcher)


def is_known(chosen: ChosenTarget, cluster: str) -> bool:
    """Return whether this machine, or its team's bucket, has a record of the cluster."""
    return ClusterStore(chosen.remembered()).last_known(cluster) is not None


def verify(chosen: ChosenTarget, teardown: Teardown) -> Verification:
    """Ask AWS what is left of the removed cluster; CloudError if something is."""
    target = replace(chosen.target(teardown.region), region=teardown.region)
    return verify_removal(teardown.name, teardown.id, target)
