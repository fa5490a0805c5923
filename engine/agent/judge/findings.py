"""Findings about nodes from the output of a run."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal, NamedTuple

from engine.contract.node_plan import NodePlan

Level = Literal["proof", "warning", "fault"]


class Finding(NamedTuple):
    """A finding about a node."""

    level: Level
    rank: int
    text: str


def hosts_of(nodes: Sequence[NodePlan]) -> dict[str, int]:
    """Return the rank of each node by all names that it may have in output."""
    ranks = {}
    for rank, node in enumerate(nodes):
        address = node.private_ip
        for host in (node.name, address, "ip-" + address.replace(".", "-")):
            ranks[host] = rank
    return ranks
