"""The choice of a run's nodes, on a cluster that may have other runs, and the order of its ranks.

Nodes that are close in the network get neighbouring ranks: a ring or tree over the ranks then
crosses the upper layers of the network as rarely as possible.
"""

from collections.abc import Mapping, Sequence
from typing import Literal

from config.run.run_file import Run
from engine.plan.modes.job import node_range
from nodes.inventory import Inventory, Node

Order = Literal["topology", "launch"]


def choose_nodes(run: Run, inventory: Inventory, load: Mapping[str, int]) -> tuple[Node, ...]:
    """Return the nodes of the run in the order of their ranks.

    `load` has the number of runs that hold each node or wait for it, by the node's name; others are
    free. Free nodes come first, then those with the fewest runs; among equals, those that come
    first in the order of ranks (order_nodes). An elastic run takes all free nodes that it can
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


def order_nodes(nodes: Sequence[Node], order: Order) -> tuple[Node, ...]:
    """Return the nodes in the order of their ranks; the first, the head, stays first.

    With `topology`, nodes below the same network node are neighbours, at every layer. Nodes that
    share the head's lowest network node come first, nodes without a known topology last. Within
    the lowest layer, and with `launch`, the order is that of `nodes`.

    `Node.topology` begins at the top layer; its last entry is the instance's own network node
    ("Examples for Amazon EC2 instance topology", EC2 User Guide, 2026-11-20).
    """
    if order == "launch" or not nodes:
        return tuple(nodes)
    first: dict[tuple[str, ...], int] = {}
    for position, node in enumerate(nodes):
        for prefix in _prefixes(node):
            first.setdefault(prefix, position)
    unknown = len(nodes)

    def place(position: int) -> tuple[int, ...]:
        layers = tuple(first[prefix] for prefix in _prefixes(nodes[position]))
        return (*(layers or (unknown,)), position)

    rest = sorted(range(1, len(nodes)), key=place)
    return (nodes[0], *(nodes[position] for position in rest))


def _prefixes(node: Node) -> tuple[tuple[str, ...], ...]:
    """Return the path to each layer of the node; a name alone may occur below two upper nodes."""
    return tuple(node.topology[:depth] for depth in range(1, len(node.topology) + 1))
