"""`gpuctl ssh CLUSTER [NODE]`: a shell on a node, host keys pinned."""

from typing import Annotated

import typer

from cli import openssh
from cli.arguments import ClusterArgument, NodeArgument
from cli.options import chosen_target
from operations import login


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
    openssh.become(login.ssh_command(chosen_target(context), cluster, node, command or ()))
