"""Files and folders between this machine and the nodes of a cluster."""

import asyncio
from dataclasses import dataclass
from pathlib import Path

from config.errors import GpuctlError, InputError
from nodes.copy import copy_from, copy_to
from nodes.inventory import named_nodes
from operations.chosen_target import ChosenTarget


@dataclass(frozen=True)
class Copied:
    """The nodes to or from which the copy is whole, and the error of each other one."""

    nodes: tuple[str, ...]
    errors: dict[str, GpuctlError]


def copy(chosen: ChosenTarget, cluster: str, source: str, target: str) -> Copied:
    """Copy a file or a folder from nodes to this machine, or to nodes.

    `source` or `target` is NODES:PATH, where NODES is node3, node[0-3,5] or all. From several nodes
    each copy is in TARGET/NODE. As with `cp -r`, a folder that exists receives the source, and any
    other target is its new name.
    """
    from_nodes, from_path = _split(source)
    to_nodes, to_path = _split(target)
    if bool(from_nodes) == bool(to_nodes):
        raise InputError(
            "one of SOURCE and TARGET is on nodes, the other on this machine",
            "write NODES:PATH for the one on nodes (node0:/tmp/x), and ./x:y for a name with a ':'",
        )
    if to_nodes and not (Path(source).exists() or Path(source).is_symlink()):
        raise InputError(f"{source} does not exist", "correct the path")
    inventory = chosen.cluster_store(cluster).inventory(cluster)
    nodes = named_nodes(inventory, from_nodes or to_nodes)
    if from_nodes:
        answers = asyncio.run(copy_from(inventory, nodes, from_path, target))
    else:
        answers = asyncio.run(copy_to(inventory, nodes, Path(source), to_path))
    errors = {node.name: error for node in nodes if (error := answers[node.rank]) is not None}
    return Copied(tuple(node.name for node in nodes if node.name not in errors), errors)


def _split(text: str) -> tuple[str, str]:
    """Return nodes and path; the nodes are empty for a path of this machine."""
    nodes, colon, path = text.partition(":")
    return (nodes, path) if colon and "/" not in nodes else ("", text)
