"""Commands of a person on all nodes of a cluster."""

from collections.abc import Mapping

from config.command_text import command_text
from config.errors import GpuctlError, InputError
from config.event_loop import run_in_loop
from nodes.answers import Completed
from nodes.inventory import ALL_NODES, named_nodes
from nodes.kept_connections import connect
from operations import login
from operations.chosen_target import ChosenTarget

__all__ = ["Completed"]


def run_on_nodes(
    chosen: ChosenTarget, cluster: str, line: str, names: str = ALL_NODES
) -> Mapping[str, Completed | GpuctlError]:
    """Run the shell line on the nodes at once; return an entry for each name, in their order.

    `names` is folded: `node3`, `node[0-3,5]`, or `all` for the nodes in rank order. Raises
    NodeError if no node could be asked, InputError for an unknown cluster or node.
    """
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    nodes = named_nodes(inventory, names)

    async def run() -> Mapping[str, Completed | GpuctlError]:
        async with connect(inventory) as connections:
            return await connections.run_on(nodes, line)

    return run_in_loop(run())


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
            f"write {command_text('--node {}', nodes[0].name)}, or leave `-t` out",
        )
    return login.ssh_to(inventory, nodes[0].name, [line], ["-t"])
