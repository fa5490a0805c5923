"""`gpuctl cp CLUSTER SOURCE TARGET`: files and folders between this machine and nodes."""

from typing import Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output
from operations import files


def cp(
    context: typer.Context,
    cluster: ClusterArgument,
    source: Annotated[str, typer.Argument(metavar="SOURCE", help="A path, or NODES:PATH.")],
    target: Annotated[str, typer.Argument(metavar="TARGET", help="A path, or NODES:PATH.")],
) -> None:
    """Copy a file or a folder from nodes to this machine, or to nodes.

    NODES is node3, node[0-3,5] or all. From several nodes each copy is in TARGET/NODE. As with
    `cp -r`, a folder that exists receives the source, and any other target is its new name.

    $ gpuctl cp demo node0:/var/log/syslog .
    $ gpuctl cp demo ./data all:/scratch/data
    """
    copied = files.copy(chosen_target(context), cluster, source, target)
    out = output(context)
    for error in copied.errors.values():
        out.complain(f"gpuctl: error: {error}")
    failed = {name: str(error) for name, error in copied.errors.items()}
    out.show({"copied": copied.nodes, "failed": failed}, ())
    raise typer.Exit(1 if failed else 0)
