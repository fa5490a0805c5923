"""The first message to a worker: what it needs for its part of the run."""

from __future__ import annotations

from engine.agent.handover import LOST_SUPERVISOR_S
from engine.agent.journal import Message
from engine.agent.launcher import STOP_GRACE_S


def work_order(
    plan: Message, rank: int, secrets: dict[str, str], *, is_waited_for: bool
) -> Message:
    """Return the order for the node with this rank; other nodes may wait until its job is ready."""
    from engine.agent.interruption import METADATA  # here, because importing HTTP is slow

    node = plan["nodes"][rank]
    return {
        "node": node,
        "nodes": [
            {key: node[key] for key in ("rank", "name", "private_ip")} for node in plan["nodes"]
        ],
        "image": plan["image"],
        "code": plan["code"],
        "secrets": {name: secrets[of] for name, of in node["secrets"].items()},
        "hidden": list(secrets.values()),
        "ready": plan["ready"] if is_waited_for else None,
        "grace_s": STOP_GRACE_S,
        "lost_supervisor_s": LOST_SUPERVISOR_S,
        "metadata": METADATA if plan["is_spot"] else None,
    }
