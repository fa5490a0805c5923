"""The way of `gpuctl up` for a file with `hosts`: examine the machines, write, verify."""

import asyncio
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from pathlib import Path

from config.cluster.hosts_file import Host, HostsCluster
from config.command_text import command_text
from config.errors import GpuctlError, InputError, NodeError
from config.event_loop import run_in_loop
from config.files import write_whole
from config.folded_names import fold
from config.foreign import Malformed
from config.person import this_person
from config.progress import Progress, Reporter, State
from nodes.identity import cluster_key
from nodes.inventory import OWN_MACHINES, Inventory, Node
from nodes.keys import ensure_key, fingerprint, public_of
from nodes.openssh import known_hosts_name, refresh_hosts
from nodes.ssh import Connections, connect
from nodes.users_ssh import Login, Route, route, run_script
from provision.health.gather import gather
from provision.health.model import AllFacts
from provision.hosts.footprint import Footprint, key_file, writing
from provision.hosts.machine import Machine, examination, problems, read
from provision.setup.node_hardware import read as read_hardware
from provision.setup.node_hardware import script as hardware_script
from provision.setup.node_health import expectation_of, findings_at_up
from provision.setup.nodes_key import ensure_nodes_key, nodes_key_path
from provision.setup.reach import reach_every_node
from provision.state.record import HostsRecord, new_hosts_record
from provision.state.store import ClusterStore

LIMIT_S = 60.0
"""Seconds of a script on a machine."""

ACCEPTED = "accepted_hosts"
"""The file in the cluster's folder with host keys that the user has accepted for gpuctl alone."""

WRITING = "writing.sh"
"""The file in the cluster's folder with the script that writes everything on a node."""

_AT_ONCE = 32


@dataclass(frozen=True)
class ExaminedHost:
    """A machine as the file names it, as ssh reaches it, and as it describes itself."""

    host: Host
    route: Route
    machine: Machine

    @property
    def internal(self) -> str:
        """Return the address that the other nodes use."""
        return self.machine.internal(self.host.internal)


@dataclass(frozen=True)
class HostsPlan:
    """What `up` is about to write, on machines that can be nodes.

    `accepted` are the lines of known_hosts of new host keys: to go on is to accept them. `joins`
    means that the cluster exists, of somebody else.
    """

    file: HostsCluster
    id: str
    hosts: tuple[ExaminedHost, ...]
    accepted: str = ""
    joins: bool = False

    @property
    def mark(self) -> str:
        """Return the line that marks the machines of this cluster; empty if they have none yet."""
        marks = (each.machine.cluster for each in self.hosts)
        return next((mark for mark in marks if mark.startswith(f"{self.id} ")), "")

    @property
    def new_host_keys(self) -> tuple[tuple[str, str], ...]:
        """Return the name and fingerprint of each host key that is accepted."""
        lines = (line.split() for line in dict.fromkeys(self.accepted.splitlines()))
        return tuple(
            (words[0], f"{words[1]} {fingerprint(' '.join(words[1:3]))}") for words in lines
        )

    @property
    def shared(self) -> dict[str, str]:
        """Return the folders that are the same file system on all machines: kind and source."""
        first, *others = (each.machine.mounts for each in self.hosts)
        return {
            folder: source
            for folder, source in first.items()
            if others and all(mounts.get(folder) == source for mounts in others)
        }

    @property
    def user(self) -> str:
        """Return who gpuctl is on the machines."""
        return self.hosts[0].machine.user

    @property
    def footprint(self) -> tuple[tuple[str, str], ...]:
        """Return the path of everything that is written on each machine, and what it is for."""
        return self.place.paths

    @property
    def place(self) -> Footprint:
        """Return where gpuctl writes on each machine; homes may differ."""
        return Footprint(self.id, self.user, self.hosts[0].machine.home)


def plan(
    cluster: HostsCluster, store: ClusterStore, report: Reporter, *, accept_new: Path | None = None
) -> HostsPlan:
    """Examine all machines at once, and change nothing on them.

    With `accept_new`, the path of a new file, unknown host keys are accepted and written there.
    Raises NodeError with a line for each problem of a machine, InputError for a file that has other
    machines than the cluster.
    """
    before = store.hosts_record(cluster.name)
    kept = store.folder(cluster.name) / ACCEPTED
    if accept_new is not None and kept.exists():
        accept_new.write_text(kept.read_text())
    accepted = accept_new or (kept if kept.exists() else None)
    logins = [login(host, accepted) for host in cluster.machines]
    answers = run_in_loop(_examine_all(logins, examination(cluster.shared or ""), kept, report))
    joined = "" if before else _existing(cluster.name, answers)
    cluster_id = before.id if before else joined or uuid.uuid4().hex[:12]
    lines, hosts = [], []
    for host, answer in zip(cluster.machines, answers, strict=True):
        if isinstance(answer, GpuctlError):
            lines.append(str(answer))
            continue
        hosts.append(ExaminedHost(host, *answer))
        unfit = problems(answer[1], host.internal, cluster_id, cluster.shared or "")
        lines += [f"{host.address}: {text}" for text in unfit]
    lines += _twice(hosts)
    lines += _several_users(hosts)
    if lines:
        raise NodeError("\n".join(lines), "")
    if before is not None:
        _check_same(before, hosts, store)
    if joined:
        _check_nodes(cluster.name, hosts)
    text = accept_new.read_text() if accept_new is not None and accept_new.exists() else ""
    return HostsPlan(cluster, cluster_id, tuple(hosts), text, bool(joined))


def login(host: Host, accepted: Path | None) -> Login:
    """Return how the user's ssh logs in to a host."""
    return Login(host.address, host.user, host.port, host.identity, host.jump, accepted)


def known_login(host: Host, folder: Path) -> Login:
    """Return the same, with the host keys that were accepted for the cluster with this folder."""
    file = folder / ACCEPTED
    return login(host, file if file.exists() else None)


async def _examine_all(
    logins: Sequence[Login], script: str, kept: Path, report: Reporter
) -> list[tuple[Route, Machine] | GpuctlError]:
    places = asyncio.Semaphore(_AT_ONCE)

    async def examine(each: Login) -> tuple[Route, Machine] | GpuctlError:
        async with places:
            report(Progress("examine", each.address, "running"))
            try:
                answer = await _examine(each, script, kept)
            except GpuctlError as error:
                report(Progress("examine", each.address, "failed", error.message))
                return error
            report(Progress("examine", each.address, "done", answer[1].text))
            return answer

    return await asyncio.gather(*(examine(each) for each in logins))


async def _examine(each: Login, script: str, kept: Path) -> tuple[Route, Machine]:
    way = await route(replace(each, accepted=kept) if each.accepted else each)
    done = await run_script(each, script, LIMIT_S)
    try:
        machine = read(done.stdout)
    except Malformed as error:
        raise NodeError(
            f"{each.address}: what it says about itself is wrong: {error}",
            "correct it there, or leave the machine out of `hosts`",
        ) from None
    if machine is None:
        raise NodeError(
            f"{each.address} cannot be examined: {done.complaint}",
            "see that `ssh` runs `sh` there: a start-up file of the shell may end it, or read its"
            " input",
        )
    return way, machine


def _twice(hosts: Sequence[ExaminedHost]) -> Iterator[str]:
    """Yield the machines that the file names twice, by two addresses."""
    known: dict[str, str] = {}
    for each in hosts:
        key = f"{each.machine.id} {each.internal}"
        if key in known:
            yield f"{each.host.address}: it is the machine of {known[key]} too: remove one"
        known.setdefault(key, each.host.address)


def _several_users(hosts: Sequence[ExaminedHost]) -> Iterator[str]:
    """Yield a line if gpuctl would not be the same user on all machines."""
    users = {each.machine.user: each.host.address for each in reversed(hosts)}
    if len(users) > 1:
        who = ", ".join(f"{user} on {address}" for user, address in users.items())
        yield f"the nodes of a cluster need one user, and gpuctl is {who}: set `user`"


def _existing(name: str, answers: Sequence[tuple[Route, Machine] | GpuctlError]) -> str:
    """Return the id of the cluster of this name that all machines are nodes of; empty for none."""
    marks = {answer[1].cluster for answer in answers if isinstance(answer, tuple)}
    words = marks.pop().split() if len(marks) == 1 else []
    return words[0] if words[1:2] == [name] else ""


def _check_nodes(name: str, hosts: Sequence[ExaminedHost]) -> None:
    """Raise InputError if the cluster that exists has other machines than the file, or an order."""
    had, has = hosts[0].machine.nodes.split(), [each.internal for each in hosts]
    if had != has:
        owner = hosts[0].machine.cluster.partition(f"{name} ")[2]
        raise InputError(
            f"cluster {name} {owner} {_difference(had, has)}",
            "name the same machines in the same order, or choose another `name`",
        )


def _difference(had: Sequence[str], has: Sequence[str]) -> str:
    """Return how the machines of a file differ from those of its cluster."""
    if sorted(had) != sorted(has):
        return f"is of {fold(had) or 'unknown machines'}, and the file has {fold(has)}"
    rank = next(rank for rank, pair in enumerate(zip(had, has, strict=True)) if len({*pair}) == 2)
    return f"has node{rank} on {had[rank]}, and the file has {has[rank]} there"


def _check_same(before: HostsRecord, hosts: Sequence[ExaminedHost], store: ClusterStore) -> None:
    """Raise InputError if the cluster had other machines: what was written there would stay."""
    had = [host.address for host in before.file.machines]
    has = [each.host.address for each in hosts]
    if had != has:
        raise InputError(
            f"cluster {before.name} {_difference(had, has)}",
            "remove what gpuctl wrote there first:"
            f" {command_text('gpuctl down {}', before.name)}; then repeat `up`",
        )


def up(hosts_plan: HostsPlan, store: ClusterStore, report: Reporter) -> Inventory:
    """Write on the machines what the plan says, verify them as nodes, and return the inventory.

    The record is on disk before anything is written on a machine. After a failure what was written
    stays; the error says how to remove it.
    """
    name = hosts_plan.file.name
    with store.lock(name, "gpuctl up"):
        before = store.hosts_record(name)
        created = before.created if before else datetime.now(UTC)
        record = new_hosts_record(hosts_plan.file, hosts_plan.id, created)
        store.write_hosts(record)
        with _record_failure(record, store):
            inventory = _inventory(hosts_plan, store)
            _keep_host_keys(hosts_plan, inventory)
            inventory = run_in_loop(_make_nodes(hosts_plan, inventory, created, report))
            store.save_inventory(inventory)
            refresh_hosts(inventory)
            store.write_hosts(record.now("ready"))
        return inventory


def _inventory(hosts_plan: HostsPlan, store: ClusterStore) -> Inventory:
    return Inventory(
        cluster=hosts_plan.file.name,
        region="",
        zone="",
        instance_type=OWN_MACHINES,
        user=hosts_plan.user,
        remote_root=hosts_plan.place.folder,
        shared=hosts_plan.file.shared or "",
        bastion=None,
        nodes=tuple(
            Node(
                rank=rank,
                name=f"node{rank}",
                instance_id=each.machine.id,
                private_ip=each.internal,
                public_ip="" if each.route.address == each.internal else each.route.address,
                port=each.route.port,
                proxy=each.route.proxy,
                gpus=each.machine.gpus,
                slots=each.machine.gpus or 1,
            )
            for rank, each in enumerate(hosts_plan.hosts)
        ),
        folder=store.folder(hosts_plan.file.name),
    )


def _keep_host_keys(hosts_plan: HostsPlan, inventory: Inventory) -> None:
    """Pin each machine's key. It said it itself, after ssh had verified it by the user's keys."""
    pinned = {
        known_hosts_name(node.address, node.port): each.machine.host_key
        for node, each in zip(inventory.nodes, hosts_plan.hosts, strict=True)
    }
    text = "".join(f"{name} {key}\n" for name, key in pinned.items())
    write_whole(inventory.folder / "known_hosts", text)
    if hosts_plan.accepted:
        write_whole(inventory.folder / ACCEPTED, hosts_plan.accepted)


async def _make_nodes(
    hosts_plan: HostsPlan, inventory: Inventory, created: datetime, report: Reporter
) -> Inventory:
    await _write(hosts_plan, inventory, created, report)
    async with connect(inventory) as connections:
        async with asyncio.TaskGroup() as group:
            tasks = [
                group.create_task(_ask_for_hardware(connections, node, each.machine, report))
                for node, each in zip(inventory.nodes, hosts_plan.hosts, strict=True)
            ]
        inventory = inventory.model_copy(update={"nodes": tuple(task.result() for task in tasks)})
        expected = expectation_of(inventory)
        _check_health(await gather(connections, inventory.nodes, expected, "full"), report)
        await reach_every_node(connections, inventory, report)
    return inventory


async def _write(
    hosts_plan: HostsPlan, inventory: Inventory, created: datetime, report: Reporter
) -> None:
    name, folder = inventory.cluster, inventory.folder
    if hosts_plan.joins:
        await _fetch_nodes_key(hosts_plan, folder)
    client = ensure_key(cluster_key(folder), f"gpuctl {name} of {this_person()}")
    keys = client, ensure_nodes_key(folder, name)
    mark = hosts_plan.mark or (
        f"{hosts_plan.id} {name} of {this_person()},"
        f" since {created.astimezone(UTC):%Y-%m-%d %H:%M} UTC"
    )
    names = [each.machine.name for each in hosts_plan.hosts]
    known = [(each.machine.port, each.machine.host_key) for each in hosts_plan.hosts]
    write_whole(
        folder / WRITING, writing(hosts_plan.place, inventory.nodes, names, mark, keys, known)
    )
    hosts = [each.host for each in hosts_plan.hosts]
    await _run_writing(list(zip(inventory.nodes, hosts, strict=True)), folder, report)


async def _fetch_nodes_key(hosts_plan: HostsPlan, folder: Path) -> None:
    """Write the key between the nodes of a cluster that exists into this person's folder."""
    host = hosts_plan.hosts[0].host
    done = await run_script(known_login(host, folder), f"cat {key_file(hosts_plan.place)}", LIMIT_S)
    private = done.stdout[done.stdout.find("-----BEGIN") :]  # behind what ~/.bashrc prints
    try:
        public_of(private)
    except NodeError as error:
        raise NodeError(f"{host.address}: the key between nodes: {error.message}", "") from None
    write_whole(nodes_key_path(folder), private)


def write_again(
    record: HostsRecord, nodes: Sequence[Node], store: ClusterStore, report: Reporter
) -> None:
    """Write on these nodes what `up` has written there: a boot may have reset files of the system.

    Raises NodeError with a line for each node where that failed.
    """
    hosts = [(node, record.file.machines[node.rank]) for node in nodes]
    run_in_loop(_run_writing(hosts, store.folder(record.name), report))


async def _run_writing(hosts: Sequence[tuple[Node, Host]], folder: Path, report: Reporter) -> None:
    try:
        script = (folder / WRITING).read_text()
    except OSError as error:
        hint = "repeat `gpuctl up FILE`, which writes it and puts all nodes into service"
        raise InputError(f"{folder / WRITING} cannot be read: {error.strerror}", hint) from error

    async def write(node: Node, host: Host) -> str:
        report(Progress("write", node.name, "running"))
        try:
            done = await run_script(known_login(host, folder), script, LIMIT_S)
        except NodeError as error:
            report(Progress("write", node.name, "failed", error.message))
            return f"{node.name}: {error}"
        state: State = "done" if done.exit_status == 0 else "failed"
        report(Progress("write", node.name, state, done.complaint if done.exit_status else ""))
        return f"{node.name} ({host.address}): {done.complaint}" if done.exit_status else ""

    lines = await asyncio.gather(*(write(*pair) for pair in hosts))
    if any(lines):
        raise NodeError("\n".join(filter(None, lines)), "")


async def _ask_for_hardware(
    connections: Connections, node: Node, machine: Machine, report: Reporter
) -> Node:
    """Return the node with its devices and software: Python, and what it has of MPI and others.

    A node without any software would count as not examined.
    """
    report(Progress("verify", node.name, "running"))
    done = await connections.run(node, "bash -l -s", stdin=hardware_script(node), timeout=LIMIT_S)
    known = read_hardware(node, done.stdout)
    return known.model_copy(update={"software": {"python": machine.python, **known.software}})


def _check_health(fleet: AllFacts, report: Reporter) -> None:
    """Report what the rules of health find; raise NodeError if a node is not fit for jobs."""
    findings = findings_at_up(fleet)
    for name in fleet.answers:
        own = [finding for finding in findings if finding.node == name]
        state: State = "failed" if any(finding.is_grave for finding in own) else "done"
        report(Progress("verify", name, state, "; ".join(finding.text for finding in own)))
    grave = [f"{each.node}: {each.text}" for each in findings if each.is_grave]
    if grave:
        raise NodeError("\n".join(grave), "docs/look-up/health-rules.md has every check")


@contextmanager
def _record_failure(record: HostsRecord, store: ClusterStore) -> Iterator[None]:
    """Write a failure of the block into the record, and say how to remove what was written."""
    try:
        yield
    except BaseException as error:
        ours = _first(error)
        why = ours.message.partition("\n")[0] if ours else "interrupted"
        store.write_hosts(record.now("failed", why))
        if ours is None:
            raise
        remedy = (
            f"{command_text('gpuctl down {}', record.name)}"
            " removes what was written on the machines"
        )
        raise ours.with_added_hint(remedy, "\n") from error


def _first(error: BaseException) -> GpuctlError | None:
    """Return the error for the user, also the first one of a group; None for another one."""
    while isinstance(error, BaseExceptionGroup):
        error = error.exceptions[0]
    return error if isinstance(error, GpuctlError) else None
