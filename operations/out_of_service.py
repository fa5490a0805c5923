"""Nodes of hosts that are out of service until they are mended: runs leave them out."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from config.command_text import command_text
from config.errors import InputError, NodeError
from config.folded_names import fold
from nodes.inventory import Inventory
from operations import health
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import check_free
from operations.watcher import LoggingWatcher, Watcher
from provision.health.judge import UNREACHABLE
from provision.hosts.people import other_people
from provision.hosts.up import write_again

_NAMED = "named by a person"


@dataclass(frozen=True)
class Outage:
    """Nodes of a cluster to take out of service, each with the reason; none if all are fit."""

    cluster: str
    nodes: Mapping[str, str] = field(default_factory=dict)


def is_of_hosts(chosen: ChosenTarget, cluster: str) -> bool:
    """Return whether the cluster is of machines that people have."""
    return chosen.hosts_store().hosts_record(cluster) is not None


def plan_outage(
    chosen: ChosenTarget,
    cluster: str,
    names: Sequence[str] = (),
    *,
    watcher: Watcher = LoggingWatcher(),
) -> Outage:
    """Return the named nodes, by default those that are not fit for jobs, with the reasons.

    Raises InputError for a name that no node in service has, if none would stay, and if a run is
    on the cluster.
    """
    store = chosen.hosts_store()
    inventory = store.inventory(cluster)
    reasons = dict.fromkeys(names, _NAMED) or _unfit(chosen, inventory)
    _check_names(inventory, reasons)
    if len(reasons) == len(inventory.nodes):
        raise InputError(
            f"no node of {cluster} would stay in service", "mend one, or remove it: `gpuctl down`"
        )
    if reasons:
        _check_others(inventory, reasons, watcher)
        hint = "stop the run first (`gpuctl stop {run}`), or wait for its end (`gpuctl wait {run}`)"
        check_free(chosen, cluster, "ranks of later runs move up", hint, watcher)
    return Outage(cluster, reasons)


def take_out(chosen: ChosenTarget, outage: Outage) -> None:
    """Take the nodes out of service: they stay in the cluster, and no run gets them."""
    store = chosen.hosts_store()
    with store.lock(outage.cluster, "gpuctl heal"):
        record = store.hosts_record(outage.cluster)
        assert record is not None
        out = {**record.out, **outage.nodes}
        store.write_hosts(record.model_copy(update={"out": out}))


def return_nodes(
    chosen: ChosenTarget,
    cluster: str,
    names: Sequence[str],
    *,
    watcher: Watcher = LoggingWatcher(),
) -> None:
    """Write again what `up` wrote on the nodes, check them, and put them into service again.

    Raises InputError for a node that is in service and for a rented cluster, NodeError with a line
    for each reason why one is not fit for jobs.
    """
    store = chosen.hosts_store()
    if store.hosts_record(cluster) is None:
        raise InputError(
            f"cluster {cluster} is not of `hosts`: gpuctl replaces nodes that it rents",
            f"{command_text('gpuctl heal {}', cluster)} does that",
        )
    with store.lock(cluster, "gpuctl heal"):
        record = store.hosts_record(cluster)
        assert record is not None
        for name in names:
            if name not in record.out:
                out = fold(record.out) or "none"
                raise InputError(f"{name} of {cluster} is not out of service", f"{out} is")
        hint = "wait for its end (`gpuctl wait {run}`)"
        check_free(chosen, cluster, "ranks of later runs change", hint, watcher)
        inventory = store.whole_inventory(cluster)
        nodes = [node for node in inventory.nodes if node.name in names]
        write_again(record, nodes, store, watcher.report)
        unfit = _unfit(chosen, inventory)
        lines = [f"{name}: {unfit[name]}" for name in names if name in unfit]
        if lines:
            raise NodeError("\n".join(lines), "mend it, then repeat this command")
        left = {name: why for name, why in record.out.items() if name not in names}
        store.write_hosts(record.model_copy(update={"out": left}))


def _unfit(chosen: ChosenTarget, inventory: Inventory) -> dict[str, str]:
    """Return the nodes that no job should use, each with the reason."""
    reasons: dict[str, str] = {}
    for finding in health.check_nodes(inventory, chosen.hosts_store()).findings:
        if finding.is_grave:
            text = finding.seen if finding.rule == UNREACHABLE else finding.text
            reasons.setdefault(finding.node, text)
    return reasons


def _check_others(inventory: Inventory, names: Mapping[str, str], watcher: Watcher) -> None:
    """Warn of other people, for whom the nodes stay in service; InputError if the head is one.

    The head has the queue of everybody's runs.
    """
    try:
        others = ", ".join(other_people(inventory))
    except NodeError:  # no key: nothing is known
        return
    head, cluster = inventory.nodes[0].name, inventory.cluster
    if others and head in names:
        raise InputError(
            f"{head} is the head of {cluster}, where {others} has runs too",
            f"mend it, or take it out after their {command_text('gpuctl down {}', cluster)}",
        )
    if others:
        watcher.warn(f"for {others} they stay in service, until the same `gpuctl heal` there")


def _check_names(inventory: Inventory, names: Mapping[str, str]) -> None:
    known = [node.name for node in inventory.nodes]
    for name in names:
        if name not in known:
            raise InputError(
                f"cluster {inventory.cluster} has no node {name} in service",
                f"it has {fold(known)}",
            )
