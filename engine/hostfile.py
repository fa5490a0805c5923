"""Hostfiles as Open MPI and DeepSpeed read them."""

from collections.abc import Sequence

from nodes.inventory import Node


def hostfile(nodes: Sequence[Node]) -> str:
    """A line `IP slots=GPUS` per node, in rank order; bare `IP` for a node without GPUs.

    As dstack writes it: `slots=0` made mpirun fail there (dstackai/dstack#3434, 2026-11-20).
    """
    return "".join(
        f"{node.private_ip} slots={node.gpus}\n" if node.gpus else f"{node.private_ip}\n"
        for node in nodes
    )
