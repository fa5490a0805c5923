"""Replace nodes that are not fit for jobs; the others stay as they are."""

from collections.abc import Sequence
from dataclasses import dataclass

from config.errors import InputError
from config.folded_names import fold
from nodes.inventory import Inventory, Node
from operations import health
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import check_free
from operations.watcher import LoggingWatcher, Watcher
from provision import healing

_MEND = "`gpuctl heal {}` takes nodes out of service instead"


@dataclass(frozen=True)
class Replacement:
    """The nodes of a cluster that are to be replaced; none if all are fit for jobs.

    `head` is the name of the head if it is among them: what runs left there is lost with it.
    """

    cluster: str
    nodes: tuple[Node, ...]
    head: str | None = None


def plan_replacement(
    chosen: ChosenTarget,
    cluster: str,
    names: Sequence[str] = (),
    *,
    watcher: Watcher = LoggingWatcher(),
) -> Replacement:
    """Return the nodes to replace: the named ones, by default those that are not fit for jobs.

    Raises InputError for a name that no node has, and if a run is on the cluster.
    """
    chosen.cluster_target(cluster, instead=_MEND.format(cluster))
    store = chosen.cluster_store(cluster)
    inventory = health.find_nodes(store, cluster, watcher)
    if not names:
        checked = health.check_nodes(inventory, store)
        for finding in checked.findings:
            if finding.is_grave:
                watcher.note(f"-- {finding.node}: {finding.text}")
        names = checked.unfit
    nodes = _named(inventory, names)
    if nodes:
        check_free(
            chosen,
            cluster,
            "its nodes would end",
            "stop the run first (`gpuctl stop {run}`); a run with `retry` replaces lost nodes by"
            " itself",
            watcher,
        )
    head = inventory.nodes[0]
    return Replacement(cluster, nodes, head.name if head in nodes else None)


def replace(
    chosen: ChosenTarget, replacement: Replacement, *, watcher: Watcher = LoggingWatcher()
) -> Inventory:
    """Terminate the machines of the nodes, and make them again; return the new inventory.

    A new machine takes the node's name and rank, in the same placement group and reservation.
    """
    name = replacement.cluster
    target = chosen.cluster_target(name, instead=_MEND.format(name))
    return healing.replace_nodes(name, replacement.nodes, target, watcher.report)


def _named(inventory: Inventory, names: Sequence[str]) -> tuple[Node, ...]:
    """Return the nodes of these names; InputError for a name that no node has."""
    known = {node.name: node for node in inventory.nodes}
    for name in names:
        if name not in known:
            raise InputError(
                f"cluster {inventory.cluster} has no node {name}", f"it has {fold(known)}"
            )
    return tuple(known[name] for name in dict.fromkeys(names))
