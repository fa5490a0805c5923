"""The bootstrap: it makes launched instances nodes that are ready for a job."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING

from config.cluster.resolved import Resolved
from config.errors import BrokenNodes, GpuctlError, NodeError
from config.event_loop import run_in_loop
from config.progress import Progress, Reporter
from config.target import Target
from infra.fleet import Fleet
from nodes.answers import Unreachable
from nodes.inventory import Bastion, Inventory, Node
from nodes.ssh import Connections, connect
from provision.aws.clients import client
from provision.aws.instances import add_topology
from provision.health.facts import NodeFacts
from provision.health.gather import ask, script
from provision.health.model import Expected
from provision.setup.lease.units import NODES, idle_files, list_nodes
from provision.setup.machines import BASTION
from provision.setup.node_hardware import read as read_hardware
from provision.setup.node_hardware import script as probe
from provision.setup.node_health import broken, expectation, folders, judge
from provision.setup.node_setup import Rebooting, wait_for_cloud_init
from provision.setup.nodes_key import NodesKey, ask_for_nodes_key
from provision.setup.reach import reach_every_node
from provision.setup.session_manager import Agents
from provision.state.host_keys import BootingMachine, BootWatch, KnownHosts, boot_limit_s
from provision.state.shared import cluster_folder

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REBOOT_PATIENCE_S = 900
"""A bare-metal instance takes minutes from its reboot to ssh."""

SSH_PATIENCE_S = 90
"""sshd answers seconds after its host key is on the console; its reload drops connections."""

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
"""Prints an id that changes with each boot of the machine."""


@dataclass(frozen=True)
class Boot:
    """The watchers of machines that boot; `agents` is None unless nodes use Session Manager.

    `questions` is the script that asks a node for facts about its health, `expected` what they must
    be. With `is_patient` a node that fails its set-up does not end the wait for the others. `key`
    is the key with which nodes reach each other; if it is None, a node gives the one of which
    `public_key` is the public half.
    """

    watch: BootWatch
    agents: Agents | None
    expected: Expected
    questions: str
    is_patient: bool
    key: NodesKey | None
    public_key: str


def bootstrap(
    resolved: Resolved,
    inventory: Inventory,
    key: NodesKey | None,
    target: Target,
    report: Reporter,
    *,
    is_patient: bool = False,
) -> Inventory:
    """Wait until every node is ready for a job, and return the inventory.

    Each node is then set up, has passed the checks of its type, has `key`, with which nodes reach
    each other (None for the one that a node has), and is reached by the head. The inventory has
    each node's RDMA devices, launchers and position in EC2's network. A second call verifies all of
    this again.

    Raises BrokenNodes with a node's output as soon as its set-up fails, without waiting for the
    other nodes; with `is_patient` once all nodes have ended their set-up, with each that failed.
    Raises BrokenNodes with a line for each failed check, of all nodes.
    """
    expected = expectation(resolved, inventory)
    questions = script(expected, "full", folders(resolved))
    agents = Agents(client(target, "ssm"), inventory.nodes) if inventory.proxy else None
    ec2 = client(target, "ec2")
    try:
        parts = (agents, expected, questions, is_patient, key, resolved.nodes_public_key)
        nodes = run_in_loop(_bootstrap(inventory, ec2, parts, report))
    except BaseExceptionGroup as errors:
        ours = errors.subgroup(GpuctlError)
        if ours is None:
            raise
        raise _first_error(ours) from None
    if inventory.bastion is not None and idle_files(resolved.cluster, NODES):
        run_in_loop(_list_nodes_on_bastion(inventory))
    nodes = add_topology(ec2, inventory.cluster, nodes, report)
    return inventory.model_copy(update={"nodes": nodes})


async def _list_nodes_on_bastion(inventory: Inventory) -> None:
    """Give the bastion the nodes' addresses: it stays while one of them answers."""
    async with connect(inventory) as connections:
        addresses = [node.private_ip for node in inventory.nodes]
        done = await connections.run_on_bastion(list_nodes(addresses), 60)
    if done.exit_status != 0:
        raise NodeError(f"the bastion does not keep the nodes' addresses: {done.complaint}", "")


def inventory_of(resolved: Resolved, fleet: Fleet, target: Target) -> Inventory:
    """Return the fleet's nodes in rank order, with a slot per GPU, or one slot without GPUs."""
    cluster, gpus = resolved.cluster, resolved.instance_type.gpus
    shared = cluster.storage.shared
    return Inventory(
        cluster=cluster.name,
        region=resolved.region,
        zone=resolved.zone,
        instance_type=resolved.instance_type.name,
        bastion=Bastion(instance_id=fleet.bastion_id, address=fleet.bastion_address)
        if fleet.bastion_id
        else None,
        nodes=tuple(
            Node(
                rank=rank,
                name=node.name,
                instance_id=node.instance_id,
                private_ip=node.private_ip,
                public_ip=node.public_ip,
                gpus=gpus,
                slots=gpus or 1,
            )
            for rank, node in enumerate(fleet.nodes)
        ),
        folder=cluster_folder(cluster.name, target),
        proxy=target.session_proxy if cluster.network.uses_session_manager else (),
        is_spot=cluster.capacity.type == "spot",
        root_gib=cluster.storage.root.gib,
        shared=shared.path if shared else "",
        ends=resolved.reservation.instances_end if resolved.reservation else None,
    )


async def _bootstrap(
    inventory: Inventory,
    ec2: "EC2Client",
    parts: tuple[Agents | None, Expected, str, bool, NodesKey | None, str],
    report: Reporter,
) -> tuple[Node, ...]:
    machines = booting_machines(inventory)
    known = KnownHosts.read(inventory.folder / "known_hosts", machines)
    known.write()
    limit_s = boot_limit_s(inventory.instance_type)
    watch = BootWatch(ec2, machines, known, report, limit_s)
    boot = Boot(watch, *parts)
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watch.watch())]
        if boot.agents is not None:
            watching.append(group.create_task(boot.agents.watch()))
        nodes = await _set_up(inventory, known, boot, report)
        for each in watching:
            each.cancel()
    return nodes


async def _set_up(
    inventory: Inventory, known: KnownHosts, boot: Boot, report: Reporter
) -> tuple[Node, ...]:
    """Wait until the nodes are set up; return them with their hardware and software."""
    async with _patient_connections(inventory, boot) as connections:
        async with asyncio.TaskGroup() as group:
            tasks = {
                node.name: group.create_task(_wait_and_ask(connections, node, boot, report))
                for node in inventory.nodes
            }
        judge(inventory, boot.expected, {n: task.result() for n, task in tasks.items()}, report)
        # The files need the host keys of all nodes, which are known only now.
        key = boot.key or await ask_for_nodes_key(connections, inventory, boot.public_key)
        share = share_of(inventory, known, key)
        async with asyncio.TaskGroup() as group:
            shared = [
                group.create_task(_hand_out(connections, node, share, report))
                for node in inventory.nodes
            ]
        await reach_every_node(connections, inventory, report)
    return tuple(task.result() for task in shared)


@asynccontextmanager
async def _patient_connections(inventory: Inventory, boot: Boot) -> AsyncIterator[Connections]:
    """Yield the connections; wait for the sshd of the bastion first, if there is one.

    A colleague's machine logs in to the nodes with their own key: new ones know no key of it.
    """
    if inventory.bastion is not None:
        await boot.watch.wait_for_host_key(BASTION)
    login = boot.key.private if boot.key and boot.key.is_from_node else ""
    deadline = asyncio.get_running_loop().time() + SSH_PATIENCE_S
    while True:
        connecting = connect(inventory, login)
        try:
            connections = await connecting.__aenter__()
            break
        except NodeError:
            if asyncio.get_running_loop().time() > deadline:
                raise
            await asyncio.sleep(1)
    try:
        yield connections
    finally:
        await connecting.__aexit__(None, None, None)


async def _wait_and_ask(
    connections: Connections, node: Node, boot: Boot, report: Reporter
) -> tuple[NodeFacts, float] | BrokenNodes:
    """Wait until the node is set up; return its facts, and by how much its clock is off.

    Other nodes may still boot. With `boot.is_patient` a failure is returned instead of raised.
    """
    try:
        await _wait_for_node(connections, node, boot, report)
        report(Progress("verify", node.name, "running"))
        return await ask(connections, node, boot.questions, "full")
    except NodeError as error:
        failed = broken(node, error)
        if not boot.is_patient:
            raise failed from None
        return failed


async def _wait_for_node(
    connections: Connections, node: Node, boots: Boot, report: Reporter
) -> None:
    watch = boots.watch
    await watch.wait_for_host_key(node.name)
    if boots.agents is not None:
        await boots.agents.wait_until_online(node)
    boot = await _wait_for_ssh(connections, node, BOOT_ID, SSH_PATIENCE_S)
    try:
        try:
            await wait_for_cloud_init(connections, node, report)
        except Rebooting:
            another = f'[ "$({BOOT_ID})" != {shlex.quote(boot.strip())} ]'
            await _wait_for_ssh(connections, node, another, REBOOT_PATIENCE_S)
            await wait_for_cloud_init(connections, node, report)
    except Unreachable:
        # EC2 reports within seconds if the machine has ended; otherwise the network failed.
        for _ in range(5):
            await watch.check_alive()
            await asyncio.sleep(1)
        raise


async def _wait_for_ssh(
    connections: Connections, node: Node, condition: str, patience_s: float
) -> str:
    """Wait until the node answers and the command succeeds on it; return the command's output."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            done = await connections.run(node, condition, timeout=30)
            if done.exit_status == 0:
                return done.stdout
        except NodeError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        else:
            if asyncio.get_running_loop().time() > deadline:
                raise Unreachable(
                    f"{node.label} did not come back after its reboot",
                    f"reboot instance {node.instance_id}, then repeat `gpuctl up`",
                )
        await asyncio.sleep(1)


async def _hand_out(connections: Connections, node: Node, share: str, report: Reporter) -> Node:
    """Let the node reach all others by name and address, and check that it has Open MPI.

    `share` is the script for that. Return the node with its hardware and software.
    """
    report(Progress("keys", node.name, "running"))
    question = f"echo '{_HARDWARE_FOLLOWS}'\nbash -l -c {shlex.quote(probe(node))} || true\n"
    done = await connections.run(node, "bash -s", stdin=share + question, timeout=180)
    shared, _, answer = done.stdout.partition(f"{_HARDWARE_FOLLOWS}\n")
    if done.exit_status != 0:
        report(Progress("keys", node.name, "failed", done.complaint))
        raise NodeError(f"{node.label}: {done.complaint}", "inspect the node with `gpuctl ssh`")
    report(Progress("keys", node.name, "done", shared.strip().rpartition("\n")[2]))
    return read_hardware(node, answer)


def booting_machines(inventory: Inventory) -> tuple[BootingMachine, ...]:
    """Return the bastion, if there is one, then the nodes."""
    nodes = tuple(booting_node(node) for node in inventory.nodes)
    entry = inventory.bastion
    if entry is None:
        return nodes
    return (BootingMachine(BASTION, entry.instance_id, entry.address, entry.port), *nodes)


def booting_node(node: Node) -> BootingMachine:
    """Return the node with the address at which the client reaches it."""
    return BootingMachine(node.name, node.instance_id, node.address, node.port)


_HARDWARE_FOLLOWS = "=== hardware ==="

# A function runs only when all of it has arrived. The files' texts are in no argument list.
_SCRIPT = """\
give() {{
    [ -d "${{2%/*}}" ] || mkdir -p "${{2%/*}}"
    printf %s "$3" > "$2.gpuctl" && chmod "$1" "$2.gpuctl" && mv -f "$2.gpuctl" "$2" && return
    rm -f "$2.gpuctl" || true
    echo "$2 cannot be written: see whether its disk is full or read-only" >&2
    exit 1
}}
share() {{
set -e
umask 077
{files}
touch ~/.ssh/authorized_keys
for key in {keys}; do
    grep -qxF "$key" ~/.ssh/authorized_keys || echo "$key" >> ~/.ssh/authorized_keys
done
touch /etc/hosts
others=$(sed '/^# gpuctl: nodes$/,/^# gpuctl: end$/d' /etc/hosts)
# A node's own name must not resolve to its loopback in a job: our lines come first and win. The
# file is never incomplete: a run may use it now.
printf -v hosts '%s\\n' {hosts} "$others"
give 644 /etc/hosts "$hosts"
[ ! -f /etc/host.conf ] || sed -i 's/^multi on/multi off/' /etc/host.conf
command -v mpirun > /dev/null || {{ echo 'mpirun is not on the PATH of ssh' >&2; exit 1; }}
mpirun --version | head -n 1
}}
share < /dev/null
"""


def share_of(inventory: Inventory, known: KnownHosts, key: NodesKey) -> str:
    """Return the bash script for standard input with which nodes reach each other by ssh."""
    hosts = "# gpuctl: nodes\n"
    hosts += "".join(f"{n.private_ip} {n.name} {_host_name(n)}\n" for n in inventory.nodes)
    hosts += "# gpuctl: end"
    config = (
        f"Host {' '.join(f'{n.name} {n.private_ip}' for n in inventory.nodes)}\n"
        "  IdentityFile ~/.ssh/id_ed25519\n  BatchMode yes\n  StrictHostKeyChecking yes\n"
        "  GlobalKnownHostsFile /etc/ssh/ssh_known_hosts\n  LogLevel ERROR\n"
    )
    files = (
        ("600", "/root/.ssh/id_ed25519", key.private),
        ("644", "/etc/ssh/ssh_known_hosts", _known_hosts(inventory.nodes, known)),
        ("644", "/etc/ssh/ssh_config.d/50-gpuctl.conf", config),
    )
    return _SCRIPT.format(
        files="\n".join(shlex.join(("give", *file)) for file in files),
        keys=shlex.join((key.public, *key.granted)),
        hosts=shlex.quote(hosts),
    )


def _host_name(node: Node) -> str:
    """Return the node's own host name, which a VPC's DNS may not know.

    The processes of a job send each other such names (torch's elastic agents), or resolve their own
    address by it (Horovod).

    "Amazon EC2 instance hostnames and domains" (EC2 User Guide, 2026-11-20): the IP name.
    """
    return f"ip-{node.private_ip.replace('.', '-')}"


def _known_hosts(nodes: Sequence[Node], known: KnownHosts) -> str:
    keys = ((n, known.key(booting_node(n))) for n in nodes)
    return "".join(f"{n.name},{n.private_ip} {key}\n" for n, key in keys if key)


def _first_error(errors: BaseExceptionGroup[GpuctlError]) -> GpuctlError:
    """Return the first single error in nested groups."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, GpuctlError)
    return first
