"""The plan of a run on fewer nodes: the texts that the client made for that number, filled in.

The client plans each size of an elastic run beforehand (engine/sizes.py), for nodes with stand-in
addresses, because only it can plan. Which nodes are left is known later.
"""

from __future__ import annotations

import re
from collections.abc import Collection
from typing import Any

STAND_IN = "240.71"
"""The first half of stand-in addresses: a part of IPv4 that no machine has (RFC 1112, class E)."""
_ADDRESS = re.compile(rf"(?<![0-9.]){re.escape(STAND_IN)}\.([0-9]+)\.([0-9]+)(?![0-9]|\.[0-9])")


def stand_in_address(rank: int) -> str:
    """Return the stand-in for the address of the node with this rank."""
    return f"{STAND_IN}.{rank >> 8}.{rank & 255}"


def is_elastic(plan: dict[str, Any]) -> bool:
    """Return whether the run may go on with fewer nodes."""
    return bool(plan.get("sizes"))


def plan_on(plan: dict[str, Any], names: Collection[str]) -> dict[str, Any]:
    """Return the plan of the run on these of its nodes, in the order of their ranks.

    The plan has a size for their number, or `names` are all nodes.
    """
    chosen = [node for node in plan["nodes"] if node["name"] in names]
    if len(chosen) == len(plan["nodes"]):
        return plan
    size = next(one for one in plan["sizes"] if len(one["nodes"]) == len(chosen))
    ips = [node["private_ip"] for node in chosen]

    def fill(value: Any) -> Any:
        if isinstance(value, str):
            return _ADDRESS.sub(lambda found: ips[int(found[1]) << 8 | int(found[2])], value)
        if isinstance(value, dict):
            return {key: fill(one) for key, one in value.items()}
        return [fill(one) for one in value] if isinstance(value, list) else value

    common = fill(size["common"])
    nodes = [
        _node(node, rank, common, fill(size["nodes"][rank])) for rank, node in enumerate(chosen)
    ]
    own = {key: size[key] for key in ("network", "startup_order", "stop_criteria", "ready")}
    return {**plan, **own, "nodes": nodes}


def _node(
    node: dict[str, Any], rank: int, common: dict[str, Any], own: dict[str, Any]
) -> dict[str, Any]:
    """Return the node's part: what all nodes have in common, and its own."""
    texts = {key: {**common[key], **own[key]} for key in ("environment", "secrets", "files")}
    texts["environment"]["GPUCTL_NODE_NAME"] = node["name"]
    return {
        **{key: node[key] for key in ("name", "private_ip")},
        **{key: own[key] for key in ("role", "processes")},
        "rank": rank,
        "script": common["script"] if own["script"] is None else own["script"],
        **texts,
    }
