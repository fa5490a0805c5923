"""A cluster's record: the cluster as it was last planned, its lease, and who has access.

A cluster of machines that people have (`hosts`) has one of another form.
"""

from collections.abc import Iterable
from datetime import datetime, timedelta
from typing import Annotated, Literal

from pydantic import AwareDatetime, Field, StringConstraints

from config.cluster.cluster_file import REGION, ZONE
from config.cluster.hosts_file import HostsCluster
from config.cluster.resolved import Resolved
from config.errors import InputError
from config.identifiers import ClusterName, NodeName
from config.models import Value

Status = Literal["creating", "ready", "failed", "destroying"]


class Lease(Value):
    """When the first of the machines that existed at the time `moved` powers off."""

    end: AwareDatetime
    moved: AwareDatetime


class Grant(Value):
    """A colleague's public key that has access, or that loses it (`is_revoked`).

    `key` is `TYPE BASE64`, `name` its comment. `open` are the machines that have not confirmed the
    latest change.
    """

    key: str
    name: str
    since: AwareDatetime
    is_revoked: bool = False
    open: tuple[str, ...] = ()


class ClusterRecord(Value):
    """A cluster as gpuctl last planned it. `problem` is the reason of a failure, in one line.

    `lease` is None without a lease, and until the machines first reported their ends. `grants` are
    the keys of colleagues; a revoked one stays until every machine has confirmed it.
    """

    name: ClusterName
    region: Annotated[str, StringConstraints(pattern=REGION)]
    zone: Annotated[str, StringConstraints(pattern=ZONE)]
    account: Annotated[str, StringConstraints(pattern=r"^[0-9]{12}$")]
    resolved: Resolved
    created: AwareDatetime
    status: Status
    problem: str = ""
    lease: Lease | None = None
    grants: tuple[Grant, ...] = ()

    @property
    def id(self) -> str:
        """The cluster's id."""
        return self.resolved.id

    def now(self, status: Status, problem: str = "") -> "ClusterRecord":
        """Return the record with another status."""
        return self.model_copy(update={"status": status, "problem": problem})


def new_record(
    resolved: Resolved, created: datetime, before: ClusterRecord | None = None
) -> ClusterRecord:
    """Return the record of a cluster that is about to be created or changed.

    It keeps lease and grants of the record `before`.
    """
    return ClusterRecord(
        name=resolved.cluster.name,
        region=resolved.region,
        zone=resolved.zone,
        account=resolved.account,
        resolved=resolved,
        created=created,
        status="creating",
        lease=before.lease if before else None,
        grants=before.grants if before else (),
    )


def lease_end(record: ClusterRecord, launches: Iterable[datetime]) -> datetime | None:
    """Return when the first machine powers off; None without a lease or without machines.

    `launches` is when each machine was launched. One that is younger than the record's lease has
    its own end, `lifetime.max` after its launch. The lease of a file that has no `lifetime` any
    more holds for the machines that run.
    """
    lifetime, lease = record.resolved.cluster.lifetime, record.lease
    ends = []
    for launched in launches:
        if lease is not None and launched < lease.moved:
            ends.append(lease.end)
        elif lifetime is not None:
            ends.append(launched + timedelta(seconds=lifetime.max))
    return min(ends, default=None)


def unknown_cluster(name: str, known: Iterable[str]) -> InputError:
    """Return the error for a name that no cluster has; it lists the names that exist."""
    names = ", ".join(sorted(known))
    return InputError(
        f"there is no cluster '{name}'",
        f"there are: {names}" if names else "`gpuctl up FILE` creates one",
    )


HOSTS_RECORD = "hosts.json"


class HostsRecord(Value):
    """A cluster of hosts as gpuctl last wrote on its machines; on this machine alone.

    `id` is in the mark on each machine. `problem` is the reason of a failure, in one line. `out`
    are the nodes that are out of service, by name, each with the reason: no run gets them.
    """

    name: ClusterName
    id: str
    file: HostsCluster
    created: AwareDatetime
    status: Status
    problem: str = ""
    out: dict[NodeName, str] = Field(default={})

    def now(self, status: Status, problem: str = "") -> "HostsRecord":
        """Return the record with another status."""
        return self.model_copy(update={"status": status, "problem": problem})


def new_hosts_record(file: HostsCluster, cluster_id: str, created: datetime) -> HostsRecord:
    """Return the record of a cluster on whose machines gpuctl is about to write."""
    return HostsRecord(name=file.name, id=cluster_id, file=file, created=created, status="creating")
