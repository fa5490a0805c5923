"""`gpuctl ssh CLUSTER [NODE]`: a shell on a node, host keys pinned."""

import os
from typing import Annotated

import typer

from cli.down import ClusterArgument
from cli.session import session


def ssh(
    context: typer.Context,
    cluster: ClusterArgument,
    node: Annotated[str, typer.Argument(help="node0, node1, … or bastion.")] = "node0",
    command: Annotated[
        list[str] | None, typer.Argument(help="A command instead of a shell.")
    ] = None,
) -> None:
    """Open a shell on a node; this process becomes `ssh`."""
    from config.errors import InputError
    from nodes.openssh import openssh_config
    from provision.records.record import load_inventory

    target = session(context).cluster_target(cluster)
    inventory = load_inventory(cluster, target)
    names = [n.name for n in inventory.nodes]
    if inventory.bastion is not None:
        names = ["bastion", *names]
    if node not in names:
        raise InputError(f"cluster {cluster} has no '{node}'", f"it has {', '.join(names)}")
    path = inventory.folder / "ssh_config"
    path.write_text(openssh_config(inventory))
    try:
        os.execvp("ssh", ["ssh", "-F", str(path), node, *(command or [])])  # noqa: S606
    except FileNotFoundError:
        raise InputError(
            "the program `ssh` is not installed", "apt-get install -y openssh-client"
        ) from None
