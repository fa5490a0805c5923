"""The status of a cluster of hosts: its record, and which machines answer now."""

from collections.abc import Iterator, Mapping

from config.command_text import command_text
from config.errors import GpuctlError
from config.event_loop import run_in_loop
from nodes.inventory import Node
from provision.hosts.people import ask_for_keys, keys_in, names_of
from provision.state.record import HostsRecord
from provision.state.store import ClusterStore
from provision.status import ClusterStatus, NodeStatus


def status_of(name: str, store: ClusterStore) -> ClusterStatus:
    """Return the cluster as it is now; each machine of a cluster that is ready is asked."""
    record = store.hosts_record(name)
    assert record is not None
    nodes: tuple[NodeStatus, ...] = ()
    users: tuple[str, ...] = ()
    if record.status == "ready":
        inventory = store.whole_inventory(name)
        answers = run_in_loop(ask_for_keys(inventory))
        nodes = tuple(_node(node, record.out, answers[node.rank]) for node in inventory.nodes)
        users = names_of(keys_in(answers))
    return ClusterStatus(
        name=name,
        id=record.id,
        owner="",
        region="",
        state=record.status,
        nodes=nodes,
        since=record.created.isoformat(timespec="seconds"),
        problems=tuple(_problems(record)),
        users=users,
    )


def _node(node: Node, out: Mapping[str, str], answer: object) -> NodeStatus:
    return NodeStatus(
        name=node.name,
        instance_id=node.instance_id,
        state=_state(node, out, answer),
        private_ip=node.private_ip,
        reason=out.get(node.name, ""),
    )


def _state(node: Node, out: Mapping[str, str], answer: object) -> str:
    if node.name in out:
        return "out of service"
    return "silent" if isinstance(answer, GpuctlError) else "running"


def _problems(record: HostsRecord) -> Iterator[str]:
    if record.problem:
        yield f"{record.problem}; repeat `gpuctl up`"
    for name, why in record.out.items():
        back = command_text("gpuctl heal {} --return {}", record.name, name)
        yield f"{name} is out of service: {why}; mend it, then {back}"
