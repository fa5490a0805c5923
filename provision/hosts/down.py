"""The way of `gpuctl down` for a cluster of hosts: remove what `up` wrote on its machines."""

import asyncio
from contextlib import suppress

from config.cluster.hosts_file import Host
from config.command_text import command_text
from config.errors import NodeError, StateError
from config.event_loop import run_in_loop
from config.progress import Progress, Reporter
from nodes.openssh import remove_hosts
from nodes.users_ssh import run_script
from provision.hosts.footprint import removal
from provision.hosts.people import own_key
from provision.hosts.up import LIMIT_S, known_login
from provision.state.record import HostsRecord
from provision.state.store import ClusterStore

_NOT_OURS, _DONE = "gpuctl: not ours", ("gpuctl: removed", "gpuctl: kept")


def down(record: HostsRecord, store: ClusterStore, report: Reporter) -> tuple[str, ...]:
    """Remove everything that gpuctl wrote on the machines, and the record; end the runs there.

    While others use the cluster, this person's key and record alone are removed.
    Return the machines' addresses. Raises NodeError with a line for each machine where that
    failed. The record then stays, and another `down` goes on.
    """
    name = record.name
    with store.lock(name, f"gpuctl down {name}", is_removal=True):
        with suppress(StateError):  # a full disk must not keep what is on the machines
            store.write_hosts(record.now("destroying"))
        removed = run_in_loop(_remove_all(record, store, report))
        remove_hosts(name, store.folder(name))
        store.forget(name)
    return removed


async def _remove_all(
    record: HostsRecord, store: ClusterStore, report: Reporter
) -> tuple[str, ...]:
    folder = store.folder(record.name)
    script = removal(record.id, own_key(folder))

    async def remove(host: Host) -> str:
        report(Progress("destroy", host.address, "running"))
        try:
            done = await run_script(known_login(host, folder), script, LIMIT_S)
        except NodeError as error:
            report(Progress("destroy", host.address, "failed", error.message))
            return str(error)
        lines = done.stdout.splitlines()
        if _NOT_OURS in lines:
            report(Progress("destroy", host.address, "done", "nothing of this cluster is there"))
        elif any(line in _DONE for line in lines):
            report(Progress("destroy", host.address, "done"))
        else:
            report(Progress("destroy", host.address, "failed", done.complaint))
            return f"{host.address}: what gpuctl wrote cannot be removed: {done.complaint}"
        return ""

    hosts = record.file.machines
    lines = [line for line in await asyncio.gather(*map(remove, hosts)) if line]
    if lines:
        raise NodeError(
            "\n".join(lines),
            f"repeat {command_text('gpuctl down {}', record.name)}"
            " when it answers; if it is gone for good, remove"
            f" {folder}, gpuctl's record of the cluster",
        )
    return tuple(host.address for host in hosts)
