"""`gpuctl cp CLUSTER SOURCE TARGET`: files and folders between this machine and nodes."""

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from cli.arguments import ClusterArgument
from cli.options import chosen_target, output

if TYPE_CHECKING:
    from config.errors import GpuctlError
    from nodes.inventory import Inventory, Node

ALL = "all"


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
    import asyncio

    from config.errors import InputError
    from nodes.copy import copy_from, copy_to
    from provision.records.record import load_inventory

    from_nodes, from_path = _split(source)
    to_nodes, to_path = _split(target)
    if bool(from_nodes) == bool(to_nodes):
        raise InputError(
            "one of SOURCE and TARGET is on nodes, the other on this machine",
            "write NODES:PATH for the one on nodes (node0:/tmp/x), and ./x:y for a name with a ':'",
        )
    if to_nodes and not (Path(source).exists() or Path(source).is_symlink()):
        raise InputError(f"{source} does not exist", "correct the path")
    inventory = load_inventory(cluster, chosen_target(context).cluster_target(cluster))
    nodes = _nodes(inventory, from_nodes or to_nodes)
    if from_nodes:
        answers = asyncio.run(copy_from(inventory, nodes, from_path, target))
    else:
        answers = asyncio.run(copy_to(inventory, nodes, Path(source), to_path))
    raise typer.Exit(_show(context, nodes, answers))


def _split(text: str) -> tuple[str, str]:
    """Return nodes and path; the nodes are empty for a path of this machine."""
    nodes, colon, path = text.partition(":")
    return (nodes, path) if colon and "/" not in nodes else ("", text)


def _nodes(inventory: "Inventory", text: str) -> "list[Node]":
    from config.errors import InputError
    from nodes.names import expand, fold

    if text == ALL:
        return list(inventory.nodes)
    by_name = {node.name: node for node in inventory.nodes}
    wanted = expand(text)
    for name in wanted:
        if name not in by_name:
            raise InputError(
                f"cluster {inventory.cluster} has no '{name}'", f"it has {fold(by_name)}, all"
            )
    return [by_name[name] for name in wanted]


def _show(
    context: typer.Context, nodes: "list[Node]", answers: "dict[int, GpuctlError | None]"
) -> int:
    """Print each failure; return the exit code."""
    out = output(context)
    failed = {node.name: error for node in nodes if (error := answers[node.rank]) is not None}
    for error in failed.values():
        out.complain(f"gpuctl: error: {error}")
    done = [node.name for node in nodes if node.name not in failed]
    out.show({"copied": done, "failed": {name: str(e) for name, e in failed.items()}}, ())
    return 1 if failed else 0
