"""From instances that were launched to nodes that are ready for a job."""

import asyncio
import shlex
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

from config.cluster.resolved import Resolved
from config.errors import GpuctlError, NodeError
from config.progress import Progress, Reporter
from config.target import Target
from infra.fleet import Fleet
from nodes.answers import Unreachable
from nodes.inventory import Bastion, Inventory, Node
from nodes.keys import ensure_key
from nodes.ssh import Connections, connect
from provision.aws.clients import client
from provision.aws.topology import add_topology
from provision.setup.cloud_init import CHECKS
from provision.setup.host_keys import BootingMachine, BootWatch, KnownHosts
from provision.setup.node_hardware import probe_node
from provision.setup.node_setup import Rebooting, failed_checks, wait_for_cloud_init
from provision.setup.reach import reach_every_node
from provision.setup.session_manager import Agents

if TYPE_CHECKING:
    from mypy_boto3_ec2 import EC2Client

REBOOT_PATIENCE_S = 900
"""A bare-metal instance takes minutes from its reboot to ssh."""

SSH_PATIENCE_S = 90
"""From the host key on the console to an sshd that answers takes seconds; a reload drops some."""

BASTION = "bastion"

BOOT_ID = "cat /proc/sys/kernel/random/boot_id"
"""Tells one boot of a machine from the next."""


@dataclass(frozen=True)
class Share:
    """What every node gets, so that each reaches each other: files by path, and a script."""

    files: tuple[tuple[str, bytes, int], ...]
    script: str


@dataclass(frozen=True)
class Boot:
    """What is watched while machines boot; `agents` only where nodes are reached by theirs."""

    watch: BootWatch
    agents: Agents | None


def bootstrap(
    resolved: Resolved, fleet: Fleet, folder: Path, target: Target, report: Reporter
) -> Inventory:
    """Every node is set up, as its type should be, holds the cluster's node-to-node key, and was
    reached by the head.

    What a run needs to know of the nodes is in the inventory: their RDMA devices, their launchers,
    and where EC2 tells that they stand in its network.

    A second call verifies all of it. Raises NodeError about the first node whose set-up failed,
    with its own output, and does not wait for the others; or about every node that is not what
    its type should be, with a line for each failed check.
    """
    inventory = inventory_of(resolved, fleet, folder)
    if resolved.cluster.network.uses_session_manager:
        inventory = inventory.model_copy(update={"proxy": target.session_proxy})
    agents = Agents(client(target, "ssm"), inventory.nodes) if inventory.proxy else None
    ec2 = client(target, "ec2")
    try:
        nodes = asyncio.run(_bootstrap(inventory, ec2, agents, report))
    except BaseExceptionGroup as errors:
        ours = errors.subgroup(GpuctlError)
        if ours is None:
            raise
        raise _leaf(ours) from None
    nodes = add_topology(ec2, inventory.cluster, nodes, report)
    return inventory.model_copy(update={"nodes": nodes})


def inventory_of(resolved: Resolved, fleet: Fleet, folder: Path) -> Inventory:
    """The fleet's nodes in rank order, with a slot per GPU, or one where there is none."""
    gpus = resolved.instance_type.gpus
    return Inventory(
        cluster=resolved.cluster.name,
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
        folder=folder,
        is_spot=resolved.cluster.capacity.type == "spot",
    )


async def _bootstrap(
    inventory: Inventory, ec2: "EC2Client", agents: Agents | None, report: Reporter
) -> tuple[Node, ...]:
    machines = booting_machines(inventory)
    known = KnownHosts.read(inventory.folder / "known_hosts", machines)
    known.write()
    watch = BootWatch(ec2, machines, known, report)
    async with asyncio.TaskGroup() as group:
        watching = [group.create_task(watch.watch())]
        if agents is not None:
            watching.append(group.create_task(agents.watch()))
        nodes = await _set_up(inventory, known, Boot(watch, agents), report)
        for each in watching:
            each.cancel()
    return nodes


async def _set_up(
    inventory: Inventory, known: KnownHosts, boot: Boot, report: Reporter
) -> tuple[Node, ...]:
    """The nodes, set up, with what they say of themselves."""
    async with _patient_connections(inventory, boot.watch) as connections:
        async with asyncio.TaskGroup() as group:
            checked = [
                group.create_task(_wait_and_check(connections, node, boot, report))
                for node in inventory.nodes
            ]
        _refuse(inventory, [line for task in checked for line in task.result()])
        # Now that every host key is known, the nodes get to know each other.
        share = share_of(inventory, known)
        async with asyncio.TaskGroup() as group:
            handed = [
                group.create_task(_hand_out(connections, node, share, report))
                for node in inventory.nodes
            ]
        await reach_every_node(connections, inventory, report)
    return tuple(task.result() for task in handed)


@asynccontextmanager
async def _patient_connections(
    inventory: Inventory, watch: BootWatch
) -> AsyncIterator[Connections]:
    """The connection through the bastion, if there is one, as soon as its sshd answers."""
    if inventory.bastion is not None:
        await watch.wait_for_host_key(BASTION)
    deadline = asyncio.get_running_loop().time() + SSH_PATIENCE_S
    while True:
        connecting = connect(inventory)
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


async def _wait_and_check(
    connections: Connections, node: Node, boots: Boot, report: Reporter
) -> tuple[str, ...]:
    """Wait until the node is set up; the checks that failed on it. Others may still boot."""
    await _wait_for_node(connections, node, boots, report)
    report(Progress("verify", node.name, "running"))
    failed = await failed_checks(connections, node)
    report(Progress("verify", node.name, "failed" if failed else "done", "; ".join(failed)))
    return tuple(f"{node.name} ({node.private_ip}): {check}" for check in failed)


async def _wait_for_node(
    connections: Connections, node: Node, boots: Boot, report: Reporter
) -> None:
    watch = boots.watch
    await watch.wait_for_host_key(node.name)
    if boots.agents is not None:
        await boots.agents.wait_until_online(node)
    await _wait_for_ssh(connections, node, "true", SSH_PATIENCE_S)
    try:
        try:
            boot = await connections.run(node, BOOT_ID, timeout=30)
            await wait_for_cloud_init(connections, node, report)
        except Rebooting:
            another = f'[ "$({BOOT_ID})" != {shlex.quote(boot.stdout.strip())} ]'
            await _wait_for_ssh(connections, node, another, REBOOT_PATIENCE_S)
            await wait_for_cloud_init(connections, node, report)
    except Unreachable:
        # EC2 knows within seconds whether it was the network or the end of the machine.
        for _ in range(5):
            await watch.check_alive()
            await asyncio.sleep(1)
        raise


async def _wait_for_ssh(
    connections: Connections, node: Node, condition: str, patience_s: float
) -> None:
    """The node answers, and the command succeeds there."""
    deadline = asyncio.get_running_loop().time() + patience_s
    while True:
        try:
            if (await connections.run(node, condition, timeout=30)).exit_status == 0:
                return
        except NodeError:
            if asyncio.get_running_loop().time() > deadline:
                raise
        else:
            if asyncio.get_running_loop().time() > deadline:
                raise Unreachable(f"{node.name} ({node.private_ip}) did not come back", "reboot it")
        await asyncio.sleep(1)


def _refuse(inventory: Inventory, lines: Sequence[str]) -> None:
    """Raise NodeError where a node is not what its type and its cluster file say."""
    if lines:
        raise NodeError(
            "\n".join(lines),
            f"`gpuctl exec {inventory.cluster} -- {CHECKS}` shows all checks; a broken machine is"
            " replaced when you terminate it and `gpuctl up` again",
        )


async def _hand_out(connections: Connections, node: Node, share: Share, report: Reporter) -> Node:
    """The node reaches every other by name and address, and has Open MPI.

    Returns it with what it says of its hardware and software.
    """
    report(Progress("keys", node.name, "running"))
    for path, data, mode in share.files:
        await connections.put(node, data, path, mode)
    done = await connections.run(node, "bash -s", stdin=share.script, timeout=120)
    if done.exit_status != 0:
        complaint = (done.stderr.strip().splitlines() or ["no reason given"])[-1]
        report(Progress("keys", node.name, "failed", complaint))
        raise NodeError(f"{node.name} ({node.private_ip}): {complaint}", "see it with `gpuctl ssh`")
    report(Progress("keys", node.name, "done", done.stdout.strip().rpartition("\n")[2]))
    return await probe_node(connections, node)


def booting_machines(inventory: Inventory) -> tuple[BootingMachine, ...]:
    """The bastion first, if there is one, then the nodes."""
    nodes = tuple(booting_node(node) for node in inventory.nodes)
    entry = inventory.bastion
    if entry is None:
        return nodes
    return (BootingMachine(BASTION, entry.instance_id, entry.address, entry.port), *nodes)


def booting_node(node: Node) -> BootingMachine:
    """The node by the address at which it is reached."""
    return BootingMachine(node.name, node.instance_id, node.address, node.port)


_SCRIPT = """\
set -e
umask 077
touch ~/.ssh/authorized_keys
grep -qxF {public} ~/.ssh/authorized_keys || echo {public} >> ~/.ssh/authorized_keys
touch /etc/hosts
others=$(sed '/^# gpuctl: nodes$/,/^# gpuctl: end$/d' /etc/hosts)
# A node's own name must not mean its loopback to a job: ours come first, and the first counts.
printf '%s\\n' {hosts} "$others" > /etc/hosts.gpuctl
chmod 644 /etc/hosts.gpuctl
mv /etc/hosts.gpuctl /etc/hosts  # whole at any time: a run may be on the node
[ ! -f /etc/host.conf ] || sed -i 's/^multi on/multi off/' /etc/host.conf
command -v mpirun > /dev/null || {{ echo 'mpirun is not on the PATH of ssh' >&2; exit 1; }}
mpirun --version | head -n 1
"""


def share_of(inventory: Inventory, known: KnownHosts) -> Share:
    """What makes the nodes reach each other by ssh, by name and by address.

    Their key is the cluster's own, apart from the client's: a node cannot enter the bastion.
    """
    private = inventory.folder / "nodes_ed25519"
    public = ensure_key(private, f"gpuctl {inventory.cluster} nodes")
    hosts = "# gpuctl: nodes\n"
    hosts += "".join(f"{n.private_ip} {n.name} {_host_name(n)}\n" for n in inventory.nodes)
    hosts += "# gpuctl: end"
    config = (
        f"Host {' '.join(f'{n.name} {n.private_ip}' for n in inventory.nodes)}\n"
        "  IdentityFile ~/.ssh/id_ed25519\n  BatchMode yes\n  StrictHostKeyChecking yes\n"
        "  GlobalKnownHostsFile /etc/ssh/ssh_known_hosts\n  LogLevel ERROR\n"
    )
    return Share(
        files=(
            ("/root/.ssh/id_ed25519", private.read_bytes(), 0o600),
            ("/etc/ssh/ssh_known_hosts", _known_hosts(inventory.nodes, known), 0o644),
            ("/etc/ssh/ssh_config.d/50-gpuctl.conf", config.encode(), 0o644),
        ),
        script=_SCRIPT.format(public=shlex.quote(public), hosts=shlex.quote(hosts)),
    )


def _host_name(node: Node) -> str:
    """What the node calls itself: a job's processes tell each other such names (torch's elastic
    agents), or look up their own address by it (Horovod). A VPC's DNS may not know it.

    "Amazon EC2 instance hostnames and domains" (EC2 User Guide, 2026-11-20): the IP name.
    """
    return f"ip-{node.private_ip.replace('.', '-')}"


def _known_hosts(nodes: Sequence[Node], known: KnownHosts) -> bytes:
    keys = ((n, known.key(booting_node(n))) for n in nodes)
    return "".join(f"{n.name},{n.private_ip} {key}\n" for n, key in keys if key).encode()


def _leaf(errors: BaseExceptionGroup[GpuctlError]) -> GpuctlError:
    """The first single error in nested groups."""
    first: BaseException = errors
    while isinstance(first, BaseExceptionGroup):
        first = first.exceptions[0]
    assert isinstance(first, GpuctlError)
    return first
