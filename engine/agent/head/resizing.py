"""The plan of a run on fewer nodes: the texts that the client made for that number, filled in.

The client plans each size of an elastic run beforehand (plan/launch_plan.py), for nodes with
stand-in addresses, because only it can plan. Which nodes are left is known later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from dataclasses import replace

from engine.contract.codec import map_texts
from engine.contract.node_plan import NodePlan
from engine.contract.plan import LaunchPlan, Size

STAND_IN = "240.71"
"""The first half of stand-in addresses: a part of IPv4 that no machine has (RFC 1112, class E)."""
_ADDRESS = re.compile(rf"(?<![0-9.]){re.escape(STAND_IN)}\.([0-9]+)\.([0-9]+)(?![0-9]|\.[0-9])")


def stand_in_address(rank: int) -> str:
    """Return the stand-in for the address of the node with this rank."""
    return f"{STAND_IN}.{rank >> 8}.{rank & 255}"


def plan_on(plan: LaunchPlan, names: Collection[str]) -> LaunchPlan:
    """Return the plan of the run on these of its nodes, in the order of their ranks.

    The plan has a size for their number, or `names` are all nodes.
    """
    chosen = [node for node in plan.nodes if node.name in names]
    if len(chosen) == len(plan.nodes):
        return plan
    planned = next(size for size in plan.sizes if len(size.nodes) == len(chosen))
    ips = [node.private_ip for node in chosen]

    def fill(text: str) -> str:
        return _ADDRESS.sub(lambda part: ips[int(part[1]) << 8 | int(part[2])], text)

    size = map_texts(planned, fill)
    return replace(
        plan,
        network=size.network,
        startup_order=size.startup_order,
        stop_criteria=size.stop_criteria,
        ready=size.ready,
        nodes=tuple(_node_plan(node, rank, size) for rank, node in enumerate(chosen)),
    )


def _node_plan(node: NodePlan, rank: int, size: Size) -> NodePlan:
    """Return the node's part: what all nodes have in common, and its own."""
    common, own = size.common, size.nodes[rank]
    return NodePlan(
        rank=rank,
        name=node.name,
        private_ip=node.private_ip,
        role=own.role,
        environment={**common.environment, **own.environment, "GPUCTL_NODE_NAME": node.name},
        script=common.script if own.script is None else own.script,
        files={**common.files, **own.files},
        secrets={**common.secrets, **own.secrets},
        processes=own.processes,
    )
