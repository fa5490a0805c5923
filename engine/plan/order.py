"""The order of ranks: nodes that are close in the network get neighbouring ranks.

A ring or tree over the ranks then crosses the upper layers of the network as rarely as possible.
"""

from collections.abc import Sequence
from typing import Literal

from nodes.inventory import Node

Order = Literal["topology", "launch"]


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
