"""The first message to a worker: what it needs for its part of the run."""

from __future__ import annotations

from dataclasses import replace

from engine.agent.link.times import Times
from engine.contract.node_plan import HeartbeatAddress, WorkOrder
from engine.contract.plan import LaunchPlan


def work_order(
    plan: LaunchPlan,
    rank: int,
    secrets: dict[str, str],
    *,
    is_waited_for: bool,
    restarts: int,
    heartbeats: HeartbeatAddress,
    times: Times,
) -> WorkOrder:
    """Return the order for the node with this rank; other nodes may wait until its job is ready.

    `restarts` is the number of attempts before this one.
    """
    node = plan.nodes[rank]
    environment = {**node.environment, "GPUCTL_RESTART_COUNT": str(restarts)}
    return WorkOrder(
        node=replace(node, environment=environment),
        hosts=plan.hosts,
        image=plan.image,
        code=plan.code,
        secrets={variable: secrets[name] for variable, name in node.secrets.items()},
        hidden=tuple(secrets.values()),
        ready=plan.ready if is_waited_for else None,
        grace_s=times.grace_s,
        lost_supervisor_s=times.lost_supervisor_s,
        is_spot=plan.is_spot,
        heartbeats=heartbeats,
    )
