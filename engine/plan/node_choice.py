"""The choice of a run's nodes, on a cluster that may have other runs."""

from collections.abc import Mapping

from config.run.run_file import Run
from engine.plan.modes.job import node_range
from engine.plan.order import order_nodes
from nodes.inventory import Inventory, Node


def choose_nodes(run: Run, inventory: Inventory, load: Mapping[str, int]) -> tuple[Node, ...]:
    """Return the nodes of the run in the order of their ranks.

    `load` has the number of runs that hold each node or wait for it, by the node's name; others are
    free. Free nodes come first, then those with the fewest runs; among equals, those that come
    first in the order of ranks (order.py). An elastic run takes all free nodes that it can
    use, and never more nodes than are free unless it needs them. There are fewer nodes than the run
    needs if the cluster has fewer; a rule reports that (engine/plan/rules.py).
    """
    least, most = node_range(run)
    ordered = order_nodes(inventory.nodes, run.order)
    free = sum(not load.get(node.name) for node in ordered)
    count = max(least, min(most, free))
    taken = {node.name for node in sorted(ordered, key=lambda node: load.get(node.name, 0))[:count]}
    chosen = order_nodes([node for node in inventory.nodes if node.name in taken], run.order)
    return tuple(node.model_copy(update={"rank": rank}) for rank, node in enumerate(chosen))
