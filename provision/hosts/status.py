"""The status of a cluster of hosts: its record, and which machines answer now."""

import asyncio

from config.errors import GpuctlError
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node
from nodes.kept_connections import connect
from provision.state.store import ClusterStore
from provision.status import ClusterStatus, NodeStatus

ASK_S = 10.0


def status_of(name: str, store: ClusterStore) -> ClusterStatus:
    """Return the cluster as it is now; each machine of a cluster that is ready is asked."""
    record = store.hosts_record(name)
    assert record is not None
    nodes: tuple[NodeStatus, ...] = ()
    if record.status == "ready":
        nodes = asyncio.run(_ask(store.inventory(name)))
    return ClusterStatus(
        name=name,
        id=record.id,
        owner="",
        region="",
        state=record.status,
        nodes=nodes,
        others=(),
        since=record.created.isoformat(timespec="seconds"),
        hourly_usd=None,
        spent_usd=None,
        ends=None,
        idle_s=None,
        uses=(),
        problems=(f"{record.problem}; repeat `gpuctl up`",) if record.problem else (),
    )


async def _ask(inventory: Inventory) -> tuple[NodeStatus, ...]:
    async with connect(inventory) as connections:

        async def ask(node: Node) -> None:
            await connections.run(node, "true", timeout=ASK_S)

        answers = await on_each(inventory.nodes, ask)
    return tuple(
        NodeStatus(
            name=node.name,
            instance_id=node.instance_id,
            state="silent" if isinstance(answers[node.rank], GpuctlError) else "running",
            private_ip=node.private_ip,
        )
        for node in inventory.nodes
    )
