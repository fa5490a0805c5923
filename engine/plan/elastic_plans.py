"""The smaller sizes of an elastic run, planned before it starts: the head cannot plan.

A run with `nodes: {min: 2, max: 4}` that has lost a node goes on with three. Hostfile, ranks and
environment for three nodes are in the launch plan already, with stand-ins for the addresses of the
nodes that will be left (engine/agent/head/resizing.py).
"""

from collections.abc import Sequence

from engine.agent.head.resizing import stand_in_address
from nodes.inventory import Node


def stand_ins(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes with stand-ins for their addresses."""
    return tuple(
        node.model_copy(update={"rank": rank, "private_ip": stand_in_address(rank)})
        for rank, node in enumerate(nodes)
    )
