"""The machines and the data that end with a cluster, and its cost so far."""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from config.catalogue.instance_types import catalogue
from config.cluster.resolved import OWNER_TAG
from config.quantities import counted, size
from config.target import Target
from provision.aws.clients import client
from provision.aws.resources import Resource, exists, find_all, find_instances
from provision.billing.cost import spent_usd
from provision.removal.orphans import mounting_clusters
from provision.state.ownership import UNKNOWN
from provision.state.record import ClusterRecord
from provision.state.store import ClusterStore


@dataclass(frozen=True)
class Losses:
    """A cluster before its removal, the data that is lost, and the resources that stay.

    `machines` is the number of instances by type. `spent_usd` is what the cluster has cost, None if
    a price is not known. `data` has a line for each kind of storage that is lost, with its size;
    `stays` one for each resource that the cluster uses and did not create.
    """

    name: str
    id: str
    owner: str
    region: str
    machines: dict[str, int]
    seconds_up: float
    spent_usd: float | None
    data: tuple[str, ...]
    stays: tuple[str, ...]


def find_losses(name: str, target: Target, cluster_id: str | None = None) -> Losses | None:
    """Return what a removal of the cluster ends.

    None if AWS has nothing of it, or if several clusters have the name and none is chosen.
    """
    store = ClusterStore(target)
    record = store.last_known(name)
    if record is not None:
        target = replace(target, region=record.region)
        cluster_id = cluster_id or record.id
        record = record if record.id == cluster_id else None
    resources = find_all(target, name, cluster_id=cluster_id)
    ids = {resource.cluster_id for resource in resources}
    if len(ids) != 1:
        return None
    now = datetime.now(UTC)
    instances = find_instances(client(target, "ec2"), name, cluster_id)
    others = [resource for resource in resources if resource.kind != "instance"]
    alive = [instance for instance in instances if exists(instance)]
    owners = {resource.owner or UNKNOWN for resource in resources}
    since = min((resource.since for resource in resources if resource.since), default=now)
    return Losses(
        name=name,
        id=ids.pop(),
        owner=record.resolved.tags.get(OWNER_TAG, UNKNOWN) if record else ", ".join(sorted(owners)),
        region=target.region,
        machines=dict(Counter(_type(instance) for instance in alive)),
        seconds_up=(now - (record.created if record else since)).total_seconds(),
        spent_usd=spent_usd([*instances, *others], now, record.resolved if record else None),
        data=tuple(_data(alive, others, mounting_clusters(store.records()))),
        stays=tuple(used_resources(record)) if record else (),
    )


def _data(
    instances: Sequence[Resource], others: Sequence[Resource], mounts: Mapping[str, str]
) -> Iterator[str]:
    """Yield what is lost: shared file systems, volumes, the instances' local disks."""
    for resource in others:
        user = f"; cluster {mounts[resource.id]} mounts it" if resource.id in mounts else ""
        if resource.kind == "EFS file system":
            used = int(resource.attributes.get("SizeInBytes", {}).get("Value", 0))
            yield f"{resource.kind} {resource.id}, {size(used)} of data{user}"
        if resource.kind == "FSx file system":
            gib = resource.attributes["StorageCapacity"]
            yield f"{resource.kind} {resource.id}, {gib} GiB{user}"
    volumes = [r.attributes.get("Size", 0) for r in others if r.kind == "volume"]
    if volumes:
        yield f"{counted(len(volumes), 'volume')}, {sum(volumes)} GiB"
    for name, number in Counter(_type(instance) for instance in instances).items():
        entry = catalogue().get(name)
        if entry is not None and entry.local_nvme_gb:
            yield f"local disks of {number} x {name}, {entry.local_nvme_gb} GB each"


def used_resources(record: ClusterRecord) -> Iterator[str]:
    """Yield what the cluster uses and did not create."""
    reservation, network = record.resolved.reservation, record.resolved.existing_network
    if reservation is not None and reservation.is_block:
        yield f"capacity block {reservation.id}, which is paid to its end"
    elif reservation is not None:
        yield f"capacity reservation {reservation.id}, which costs as much as its instances"
    if network is not None:
        yield f"network {network.vpc}"
    shared, storage = record.resolved.cluster.storage.shared, record.resolved.existing_storage
    if storage is not None and shared is not None:
        yield f"file system {storage.id} ({shared.type}) with its data"
    for bucket in record.resolved.cluster.storage.buckets:
        yield f"S3 bucket {bucket} with its data"


def _type(instance: Resource) -> str:
    return str(instance.attributes["InstanceType"])
