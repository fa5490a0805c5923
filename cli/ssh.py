"""`gpuctl ssh CLUSTER [NODE]`: a shell on a node, host keys pinned."""

import os
from typing import Annotated

import typer

from cli.arguments import ClusterArgument, NodeArgument
from cli.options import chosen_target


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
    from config.errors import InputError
    from nodes.openssh import write_openssh_config
    from provision.records.record import load_inventory

    target = chosen_target(context).cluster_target(cluster)
    inventory = load_inventory(cluster, target)
    names = [n.name for n in inventory.nodes]
    if inventory.bastion is not None:
        names = ["bastion", *names]
    if node not in names:
        raise InputError(f"cluster {cluster} has no '{node}'", f"it has {', '.join(names)}")
    path = write_openssh_config(inventory)
    try:
        os.execvp("ssh", ["ssh", "-F", str(path), node, *(command or [])])  # noqa: S606
    except FileNotFoundError:
        raise InputError(
            "the program `ssh` is not installed", "apt-get install -y openssh-client"
        ) from None
