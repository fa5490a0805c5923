"""The record of a cluster of machines that people have (`hosts`)."""

from datetime import datetime

from pydantic import AwareDatetime, Field

from config.cluster.hosts_file import HostsCluster
from config.identifiers import ClusterName, NodeName
from config.models import Value
from provision.state.record import Status

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
