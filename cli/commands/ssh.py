"""`gpuctl ssh CLUSTER [NODE]`: a shell on a node, host keys pinned."""

import os
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument, NodeArgument
from cli.options import chosen_target

if TYPE_CHECKING:
    from nodes.inventory import Inventory


def ssh(
    context: typer.Context,
    cluster: ClusterArgument,
    node: NodeArgument = "node0",
    command: Annotated[
        list[str] | None,
        typer.Argument(metavar="COMMAND", help="A command instead of a shell, as it is."),
    ] = None,
) -> None:
    """Open a shell on a node, or run one command there.

    gpuctl becomes `ssh`, with host keys pinned. Options of gpuctl are written before the command;
    behind its first word, or behind `--`, all is for `ssh`.

    $ gpuctl ssh demo node1
    $ gpuctl ssh demo node0 -- -N -L 8265:10.0.0.5:8265
    """
    import asyncio

    from config.errors import InputError
    from nodes.identity import has_cluster_key
    from nodes.openssh import write_openssh_config
    from provision.records.record import load_inventory

    target = chosen_target(context).cluster_target(cluster)
    inventory = load_inventory(cluster, target)
    names = [n.name for n in inventory.nodes]
    if inventory.bastion is not None:
        names = ["bastion", *names]
    if node not in names:
        raise InputError(f"cluster {cluster} has no '{node}'", f"it has {', '.join(names)}")
    if not has_cluster_key(inventory.folder):
        asyncio.run(_try_login(inventory, node))
    path = write_openssh_config(inventory)
    try:
        os.execvp("ssh", ["ssh", "-F", str(path), node, *(command or [])])  # noqa: S606
    except FileNotFoundError:
        raise InputError(
            "the program `ssh` is not installed", "apt-get install -y openssh-client"
        ) from None


async def _try_login(inventory: "Inventory", name: str) -> None:
    """Raise NodeError, with what to do, if a machine refuses the user's keys: ssh would not say."""
    from nodes.ssh import connect

    async with connect(inventory) as connections:
        for node in inventory.nodes:
            if node.name == name:
                await connections.run(node, "true", timeout=60)
