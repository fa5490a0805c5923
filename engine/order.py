"""The order of ranks: neighbours in the network next to each other.

A ring or tree over ranks then crosses the upper layers of the network as rarely as can be.
"""

from collections.abc import Sequence
from typing import Literal

from nodes.inventory import Node

Order = Literal["topology", "launch"]


def ordered(nodes: Sequence[Node], order: Order) -> tuple[Node, ...]:
    """The nodes in the order of their ranks; the first of them stays first, it is the head.

    With `topology` nodes below the same network node are together, at every layer: first those
    that share the head's lowest one, and nodes of which nobody knows where they are last. Within
    the lowest layer, and with `launch`, the order is that of `nodes`.

    Network nodes come from the top, the last is the instance's own: "Examples for Amazon EC2
    instance topology" (EC2 User Guide, 2026-11-20).
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
    """The way to the node, layer by layer; a name alone may stand below two upper ones."""
    return tuple(node.topology[:depth] for depth in range(1, len(node.topology) + 1))
