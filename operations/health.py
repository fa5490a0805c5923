"""The health of a cluster's nodes, compared with their type, their file and each other."""

from dataclasses import dataclass
from pathlib import Path

from config.errors import InputError
from config.event_loop import run_in_loop
from engine.analysis.bisect.report import describe
from engine.analysis.bisect.rounds import MOST_NODES
from nodes.inventory import Inventory
from nodes.kept_connections import connect
from operations.bisect import LARGEST, measure_nodes
from operations.chosen_target import ChosenTarget
from operations.cluster_occupancy import check_free
from operations.watcher import LoggingWatcher, Watcher
from provision.healing import existing_nodes
from provision.health.model import SEVERITIES, Finding
from provision.health.rules import DEEP_RULES, RULES
from provision.setup import node_health
from provision.state.store import ClusterStore

__all__ = ["SEVERITIES"]


@dataclass(frozen=True)
class Health:
    """The health of a cluster: its nodes, the rules that were checked, and what they found."""

    cluster: str
    nodes: tuple[str, ...]
    rules: tuple[str, ...]
    findings: tuple[Finding, ...]

    @property
    def unfit(self) -> list[str]:
        """Return the nodes that no job should use."""
        return list(dict.fromkeys(finding.node for finding in self.findings if finding.is_grave))


def check(
    chosen: ChosenTarget,
    cluster: str,
    *,
    deep: bool = False,
    watcher: Watcher = LoggingWatcher(),
) -> Health:
    """Return what the rules find on all nodes, also those of a cluster whose `up` failed.

    With `deep` the nodes are measured too, for up to an hour: DCGM's diagnostic, NCCL on each node
    over the network, all pairs. No run can use the cluster meanwhile (`check_measurable`).
    """
    if deep:
        check_measurable(chosen, cluster, watcher=watcher)
    store = chosen.cluster_store(cluster)
    inventory = find_nodes(store, cluster, watcher)
    checked = check_nodes(inventory, store)
    if not deep:
        return checked
    return Health(
        cluster,
        checked.nodes,
        (*checked.rules, *(rule.id for rule in DEEP_RULES)),
        (*checked.findings, *_measure(inventory, store, chosen.runs, watcher)),
    )


def check_measurable(
    chosen: ChosenTarget, cluster: str, *, watcher: Watcher = LoggingWatcher()
) -> None:
    """Raise InputError if the nodes cannot be measured: a run uses them, or they are not ready."""
    store = chosen.cluster_store(cluster)
    find_nodes(store, cluster, watcher)
    if store.known(cluster).status == "failed":
        raise InputError(
            f"cluster {cluster} is not ready, and --deep runs jobs on it",
            "check it without --deep, or repeat `gpuctl up` first",
        )
    reason, hint = "--deep measures its nodes", "wait for its end (`gpuctl wait {run}`)"
    check_free(chosen, cluster, reason, hint, watcher)


def find_nodes(store: ClusterStore, cluster: str, watcher: Watcher) -> Inventory:
    """Return the cluster's nodes; warn if its last `up` failed."""
    inventory = existing_nodes(cluster, store)
    record = store.known(cluster)
    if record.status == "failed":
        watcher.warn(
            f"the last `gpuctl up` of {cluster} failed ({record.problem}); another `gpuctl up` or"
            " `gpuctl heal` makes it ready"
        )
    return inventory


def check_nodes(inventory: Inventory, store: ClusterStore) -> Health:
    """Return what the rules find on these nodes, without a measurement."""
    record = store.known(inventory.cluster)
    checks = node_health.checklist(record, inventory)

    async def full_check() -> tuple[Finding, ...]:
        is_ready = record.status != "failed"
        async with connect(inventory) as connections:
            return await node_health.full_check(connections, inventory, checks, is_ready=is_ready)

    names = tuple(node.name for node in inventory.nodes)
    rules = tuple(rule.id for rule in RULES)
    return Health(inventory.cluster, names, rules, run_in_loop(full_check()))


def _measure(
    inventory: Inventory, store: ClusterStore, runs: Path, watcher: Watcher
) -> tuple[Finding, ...]:
    """Return what the measurements find: DCGM and NCCL on each node, then all pairs."""
    slow = _slow_nodes(inventory, runs, watcher)
    if inventory.nodes[0].gpus:
        watcher.note(f"-- DCGM's diagnostic and NCCL's loop-back on {len(inventory.nodes)} nodes")
    checks = node_health.checklist(store.known(inventory.cluster), inventory)

    async def deep_check() -> tuple[Finding, ...]:
        async with connect(inventory) as connections:
            return await node_health.deep_check(connections, inventory, checks, slow)

    return run_in_loop(deep_check())


def _slow_nodes(inventory: Inventory, runs: Path, watcher: Watcher) -> dict[str, str]:
    """Return the nodes that a bisect names, with what it says; none for a single node."""
    if not 2 <= len(inventory.nodes) <= MOST_NODES:
        return {}
    bisect = measure_nodes(inventory, runs, LARGEST, watcher)
    return {
        bisect.nodes[place]: describe(suspect, bisect.nodes)
        for suspect in bisect.suspects
        for place in suspect.nodes
    }
