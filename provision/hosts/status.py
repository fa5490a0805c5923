"""The status of a cluster of hosts: its record, and which machines answer now."""

import asyncio
from collections.abc import Iterator, Mapping

from config.errors import GpuctlError
from nodes.fanout import on_each
from nodes.inventory import Inventory, Node
from nodes.kept_connections import connect
from provision.state.hosts_record import HostsRecord
from provision.state.store import ClusterStore
from provision.status import ClusterStatus, NodeStatus

ASK_S = 10.0


def status_of(name: str, store: ClusterStore) -> ClusterStatus:
    """Return the cluster as it is now; each machine of a cluster that is ready is asked."""
    record = store.hosts_record(name)
    assert record is not None
    nodes: tuple[NodeStatus, ...] = ()
    if record.status == "ready":
        nodes = asyncio.run(_ask(store.whole_inventory(name), record.out))
    return ClusterStatus(
        name=name,
        id=record.id,
        owner="",
        region="",
        state=record.status,
        nodes=nodes,
        since=record.created.isoformat(timespec="seconds"),
        problems=tuple(_problems(record)),
    )


async def _ask(inventory: Inventory, out: Mapping[str, str]) -> tuple[NodeStatus, ...]:
    async with connect(inventory) as connections:

        async def ask(node: Node) -> None:
            await connections.run(node, "true", timeout=ASK_S)

        answers = await on_each(inventory.nodes, ask)
    return tuple(
        NodeStatus(
            name=node.name,
            instance_id=node.instance_id,
            state=_state(node, out, answers[node.rank]),
            private_ip=node.private_ip,
            reason=out.get(node.name, ""),
        )
        for node in inventory.nodes
    )


def _state(node: Node, out: Mapping[str, str], answer: object) -> str:
    if node.name in out:
        return "out of service"
    return "silent" if isinstance(answer, GpuctlError) else "running"


def _problems(record: HostsRecord) -> Iterator[str]:
    if record.problem:
        yield f"{record.problem}; repeat `gpuctl up`"
    for name, why in record.out.items():
        back = f"gpuctl heal {record.name} --return {name}"
        yield f"{name} is out of service: {why}; mend it, then `{back}`"
