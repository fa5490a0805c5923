"""A cluster of the Python API."""

import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import Self, Unpack

from config.duration import SIZE, byte_count
from config.errors import GpuctlError, InputError
from config.run import run_file
from gpuctl.calls import Caller, api_call, seconds_of
from gpuctl.run_api import Run
from gpuctl.run_options import RunOptions, prepare
from operations import (
    bisect,
    drift,
    files,
    heal,
    health,
    lease,
    login,
    node_commands,
    out_of_service,
    release,
    run_queue,
    runs,
    status,
    team,
    usage,
)
from operations.bisect import Bisect
from operations.drift import Drift
from operations.files import Copied
from operations.heal import Replacement
from operations.health import Health
from operations.lease import Extension
from operations.login import Hosts
from operations.node_commands import Completed
from operations.out_of_service import Outage
from operations.prepared_run import PreparedRun
from operations.release import Teardown
from operations.run_queue import Queue
from operations.status import ClusterStatus, Inventory
from operations.team import Access, Member
from operations.usage import ClusterUsage

__all__ = ["Cluster"]


class Cluster:
    """A cluster, which may be ready, half made or gone.

    As a context manager it is removed at the end of the block, also after an exception or Ctrl-C.
    """

    def __init__(self, name: str, caller: Caller) -> None:
        """Name the cluster; `gpuctl.up` and `gpuctl.cluster` do this."""
        self.name = name
        self._caller, self._chosen, self._watcher = caller, caller.target, caller.watcher

    def __repr__(self) -> str:
        return f"<gpuctl.Cluster {self.name}>"

    def __enter__(self) -> Self:
        return self

    @api_call
    def __exit__(self, *_: object) -> None:
        # The block, or a run with `on_stop: destroy`, may have removed it.
        if release.is_known(self._chosen, self.name):
            self.down()

    @api_call
    def status(self) -> ClusterStatus:
        """Return the cluster as AWS and this machine's records have it; InputError without one."""
        return status.cluster(self._chosen, self.name)[0]

    @api_call
    def inventory(self) -> Inventory:
        """Return the nodes of a cluster that is ready: names, addresses, ranks, GPUs."""
        return status.inventory(self._chosen, self.name)

    @api_call
    def health(self, *, deep: bool = False) -> Health:
        """Check which nodes are fit for jobs; `deep` measures them too, for up to an hour."""
        return health.check(self._chosen, self.name, deep=deep, watcher=self._watcher)

    @api_call
    def heal(self, nodes: Sequence[str] = ()) -> Replacement | Outage:
        """Replace these nodes, by default those that are not fit for jobs; return which.

        Their machines are terminated, and new ones take their names and ranks. Nodes of `hosts` are
        taken out of service instead, until `return_nodes`. InputError if a run is on the cluster.
        """
        if out_of_service.is_of_hosts(self._chosen, self.name):
            outage = out_of_service.plan_outage(
                self._chosen, self.name, nodes, watcher=self._watcher
            )
            out_of_service.take_out(self._chosen, outage)
            return outage
        planned = heal.plan_replacement(self._chosen, self.name, nodes, watcher=self._watcher)
        if planned.nodes:
            heal.replace(self._chosen, planned, watcher=self._watcher)
        return planned

    @api_call
    def return_nodes(self, nodes: Sequence[str]) -> None:
        """Check these nodes of `hosts`, which are out of service, and put them into service again.

        InputError for a node that is in service, NodeError with the reasons if one is not fit.
        """
        out_of_service.return_nodes(self._chosen, self.name, nodes, watcher=self._watcher)

    @api_call
    def exec(self, command: str, nodes: str = "all") -> Mapping[str, Completed | GpuctlError]:
        """Run a shell command on nodes; return the answers by the nodes' names.

        `nodes` is folded: `node3`, `node[0-3,5]`, or `all`. The answer of a node that cannot be
        reached is its error.
        """
        return node_commands.run_on_nodes(self._chosen, self.name, command, nodes)

    @api_call
    def cp(self, source: str, target: str) -> Copied:
        """Copy a file or a folder to nodes or from nodes, which are NODES:PATH, as `gpuctl cp`."""
        return files.copy(self._chosen, self.name, source, target)

    @api_call
    def ssh_command(self, node: str = "node0", command: Sequence[str] = ()) -> list[str]:
        """Return the command of OpenSSH for a shell on the node, or for one command there."""
        return login.ssh_command(self._chosen, self.name, node, command)

    @api_call
    def write_ssh_config(self) -> Hosts:
        """Write the nodes as hosts into your ssh settings (`ssh NAME-node0`); return the hosts."""
        hosts = login.plan_hosts(self._chosen, self.name)
        login.write_hosts(hosts)
        return hosts

    @api_call
    def remove_ssh_config(self) -> bool:
        """Remove the nodes from your ssh settings; return whether they were there."""
        return login.remove_hosts(self._chosen, self.name)[1]

    @api_call
    def members(self) -> tuple[Member, ...]:
        """Return the keys that have access: gpuctl's own, then those of colleagues."""
        return team.members(self._chosen, self.name)

    @api_call
    def grant(self, key: str) -> Access:
        """Give a colleague's public key (its path, or itself) access to all machines."""
        return team.grant(self._chosen, self.name, key)

    @api_call
    def revoke(self, key: str) -> Access:
        """Take a key's access away from all machines, and end its connections."""
        return team.revoke(self._chosen, self.name, key)

    @api_call
    def extend(self, by: str | timedelta) -> Extension:
        """Let the cluster's lease end later by this duration (`2h`) on all its machines."""
        return lease.extend(self._chosen, self.name, seconds_of(by, "by"))

    @api_call
    def drift(self) -> Drift:
        """Return how the cluster in AWS differs from what the last `up` left."""
        return drift.find(self._chosen, self.name, watcher=self._watcher)

    @api_call
    def usage(self) -> ClusterUsage:
        """Return what the cluster's runs use of its nodes now."""
        watched = usage.find_watched(self._chosen, self.name, watcher=self._watcher)
        return usage.current_usage(watched, watcher=self._watcher)[0]

    @api_call
    def queue(self) -> Queue:
        """Return the runs on the cluster; those that wait are in their order."""
        return run_queue.queue(self._chosen, self.name)

    @api_call
    def bisect(self, *, size: str = "256M") -> Bisect:
        """Find the node, or the pair of nodes, that holds the fleet back; `size` is of messages.

        No other run can use the cluster meanwhile.
        """
        planned = bisect.plan_bisect(self._chosen, self.name)
        return bisect.measure(planned, largest=_bytes(size), watcher=self._watcher)[0]

    @api_call
    def plan_run(self, file: str | Path, **options: Unpack[RunOptions]) -> PreparedRun:
        """Return the run as `run` would start it, with its launch plan; nothing is started."""
        return prepare(self._caller, Path(file), options, cluster=self.name)

    @api_call
    def run(
        self,
        file: str | Path,
        *,
        secrets: Iterable[str] = (),
        send: Iterable[str | Path] = (),
        check_health: bool = True,
        **options: Unpack[RunOptions],
    ) -> Run:
        """Start a job on the cluster, and return it once it has started.

        `secrets` names the credentials of your environment that the run may take, `send` the paths
        outside the file's folder that it may send: without them such a run is an InputError.
        Without `check_health` the nodes are not checked before.
        """
        prepared = prepare(self._caller, Path(file), options, cluster=self.name)
        for text in prepared.warnings:
            self._watcher.warn(text)
        _check_consent(prepared, set(secrets), send)
        ready = runs.make_ready(
            self._chosen,
            prepared,
            check_nodes=check_health,
            forwards_ports=False,
            watcher=self._watcher,
        )
        runs.start(self._chosen, ready, watcher=self._watcher)
        return Run(ready.plan.run_id, self._caller)

    @api_call
    def down(
        self, *, cluster_id: str | None = None, owner: str | None = None, verify: bool = False
    ) -> Teardown:
        """Remove everything of the cluster; its runs that go on end as failed.

        `cluster_id` chooses one of several clusters of that name. A cluster of somebody else needs
        their name as `owner`. With `verify` AWS's lists are asked afterwards: CloudError if
        something is left.
        """
        planned = release.plan_removal(
            self._chosen, self.name, cluster_id=cluster_id, watcher=self._watcher
        )
        if planned.occupancy:
            self._watcher.warn(f"{planned.occupancy}; it ends with the cluster")
        ownership = release.check_owner(self._chosen, self.name, cluster_id=cluster_id, owner=owner)
        if ownership is not None:
            raise InputError(
                f"cluster '{self.name}' (id {ownership.id or 'none'}) {ownership.text}",
                f"ask them to remove it, or pass owner={ownership.owner!r}",
            )
        teardown = release.down(self._chosen, planned, watcher=self._watcher)
        for text in teardown.warnings:
            self._watcher.warn(text)
        if verify:
            release.verify(self._chosen, teardown)
        return teardown


def _check_consent(prepared: PreparedRun, secrets: set[str], send: Iterable[str | Path]) -> None:
    """Raise InputError for what the run takes or sends without the caller's consent."""
    name = prepared.plan.name
    for credential in prepared.credentials:
        if credential.name not in secrets:
            raise InputError(
                f"{name} takes {credential.name} from your environment for {credential.recipient}",
                f"pass secrets=({credential.name!r},) if it may",
            )
    allowed = {Path(path).expanduser().resolve() for path in send}
    for path in prepared.outside_paths:
        if path not in allowed:
            raise InputError(
                f"{name} sends {path}, which is not in the run file's folder",
                f"pass send=({str(path)!r},) if it may",
            )


def _bytes(size: str) -> int:
    if not re.fullmatch(SIZE, size):
        raise InputError(f"size is '{size}'", f"allowed are {run_file.FORMS[SIZE]}")
    return byte_count(size)
