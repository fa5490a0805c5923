"""The way of `gpuctl down` for a cluster of hosts: remove what `up` wrote on its machines."""

import asyncio

from config.cluster.hosts_file import Host
from config.errors import NodeError
from config.progress import Progress, Reporter
from nodes.ssh_hosts import remove_hosts
from nodes.users_ssh import run_as_root
from provision.hosts.footprint import removal
from provision.hosts.up import ACCEPTED, LIMIT_S, login
from provision.state.hosts_record import HostsRecord
from provision.state.store import ClusterStore

_NOT_OURS, _REMOVED = "gpuctl: not ours", "gpuctl: removed"


def down(record: HostsRecord, store: ClusterStore, report: Reporter) -> tuple[str, ...]:
    """Remove everything that gpuctl wrote on the machines, and the record; end the runs there.

    Return the machines' addresses. Raises NodeError with a line for each machine where that
    failed. The record then stays, and another `down` goes on.
    """
    name = record.name
    with store.lock(name, f"gpuctl down {name}", is_removal=True):
        store.write_hosts(record.now("destroying"))
        removed = asyncio.run(_remove_all(record, store, report))
        remove_hosts(name, store.folder(name))
        store.forget(name)
    return removed


async def _remove_all(
    record: HostsRecord, store: ClusterStore, report: Reporter
) -> tuple[str, ...]:
    file = store.folder(record.name) / ACCEPTED
    accepted = file if file.exists() else None
    script = removal(record.id)

    async def remove(host: Host) -> str:
        report(Progress("destroy", host.address, "running"))
        try:
            done = await run_as_root(login(host, accepted), script, LIMIT_S)
        except NodeError as error:
            report(Progress("destroy", host.address, "failed", error.message))
            return str(error)
        lines = done.stdout.splitlines()
        if _NOT_OURS in lines:
            report(Progress("destroy", host.address, "done", "nothing of this cluster is there"))
        elif _REMOVED in lines:
            report(Progress("destroy", host.address, "done"))
        else:
            report(Progress("destroy", host.address, "failed", done.complaint))
            return f"{host.address}: what gpuctl wrote cannot be removed: {done.complaint}"
        return ""

    hosts = record.file.machines
    lines = [line for line in await asyncio.gather(*map(remove, hosts)) if line]
    if lines:
        folder = store.folder(record.name)
        raise NodeError(
            "\n".join(lines),
            f"repeat `gpuctl down {record.name}` when it answers; if it is gone for good, remove"
            f" {folder}, gpuctl's record of the cluster",
        )
    return tuple(host.address for host in hosts)
