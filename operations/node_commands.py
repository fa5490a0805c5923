"""Commands of a person on all nodes of a cluster."""

import asyncio
from collections.abc import Mapping

from config.errors import GpuctlError, InputError
from nodes.answers import Completed
from nodes.inventory import ALL_NODES, named_nodes
from nodes.kept_connections import KeptConnections
from operations import login
from operations.chosen_target import ChosenTarget

__all__ = ["Completed", "run_on_nodes", "terminal_command"]


def run_on_nodes(
    chosen: ChosenTarget, cluster: str, line: str, names: str = ALL_NODES
) -> Mapping[str, Completed | GpuctlError]:
    """Run the shell line on the nodes at once; return an entry for each name, in their order.

    `names` is folded: `node3`, `node[0-3,5]`, or `all` for the nodes in rank order. Raises
    NodeError if no node could be asked, InputError for an unknown cluster or node.
    """
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    return asyncio.run(KeptConnections(inventory).run_on(named_nodes(inventory, names), line))


def terminal_command(chosen: ChosenTarget, cluster: str, line: str, names: str) -> list[str]:
    """Return the command of OpenSSH that runs the shell line in a terminal, on one node.

    Of all nodes, that is the first. Raises InputError for several, and for an unknown one.
    """
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    nodes = named_nodes(inventory, names)
    if names == ALL_NODES:
        nodes = nodes[:1]
    if len(nodes) != 1:
        raise InputError(
            f"a terminal is on one node; '{names}' has {len(nodes)}",
            f"write `--node {nodes[0].name}`, or leave `-t` out",
        )
    return login.ssh_to(inventory, nodes[0].name, [line], ["-t"])
