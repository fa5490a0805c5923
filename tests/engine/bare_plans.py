"""Launch plans with no more than a reader of output needs."""

from collections.abc import Sequence
from typing import Any

from engine.contract.node_plan import NodePlan
from engine.contract.plan import LaunchPlan, NetworkPlan


def bare_node(rank: int, private_ip: str = "", name: str = "", processes: int = 0) -> NodePlan:
    """A node with 8 GPUs; by default node0 at 10.0.0.0 and so on."""
    return NodePlan(
        rank=rank,
        name=name or f"node{rank}",
        private_ip=private_ip or f"10.0.0.{rank}",
        role="master" if rank == 0 else "worker",
        environment={"GPUCTL_GPUS_PER_NODE": "8"},
        script="",
        files={},
        processes=processes,
    )


def bare_plan(
    nodes: Sequence[NodePlan], network: NetworkPlan | None = None, **fields: Any
) -> LaunchPlan:
    """The plan of run job-000001 of cluster demo on these nodes."""
    values: dict[str, Any] = {
        "run_id": "job-000001",
        "name": "job",
        "cluster": "demo",
        "head": nodes[0].name,
        "startup_order": "any",
        "stop_criteria": "all-done",
        "max_duration_s": None,
        "on_stop": "keep",
        "ready": None,
        "cluster_ips": (),
        **fields,
    }
    return LaunchPlan(nodes=tuple(nodes), network=network or NetworkPlan(), **values)
