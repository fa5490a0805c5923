"""The rules for what belongs to no cluster that is in use; they send no request.

A record is the proof that a cluster is in use, and it is on one machine alone. So this machine
cannot know about another one's clusters, and gpuctl is careful: docs/do/gc.md has the reasons.
"""

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Literal

from config.folded_names import fold
from provision.aws.instances import end_of
from provision.aws.resources import KINDS, Resource
from provision.billing.cost import leftover_price
from provision.state.record import ClusterRecord

Verdict = Literal["orphaned", "doubtful", "recorded", "foreign"]

YOUNG = timedelta(hours=1)
"""`up` takes at most 45 minutes once it has capacity. What is older is not being created."""

UNKNOWN = "unknown"
"""The owner of what has no tag with its owner."""


@dataclass(frozen=True)
class FoundResource:
    """A resource of a cluster. `since` is ISO 8601, None if AWS does not report it.

    `hourly_usd` is None if gpuctl does not know the price.
    """

    kind: str
    id: str
    name: str
    state: str
    since: str | None
    hourly_usd: float | None


@dataclass(frozen=True)
class FoundCluster:
    """All that exists with one cluster's name and id in a region.

    `verdict` is `recorded` if this machine knows the cluster, `foreign` if its owner is another one
    or unknown, `doubtful` if it is ours but another machine may still use it, else `orphaned`.
    `reasons` are those of a doubt. `hourly_usd` is the sum of the known prices; `unpriced` has the
    kinds of the resources without one.
    """

    name: str
    id: str
    owner: str
    region: str
    verdict: Verdict
    reasons: tuple[str, ...]
    since: str | None
    hourly_usd: float
    unpriced: tuple[str, ...]
    resources: tuple[FoundResource, ...]

    @property
    def instances(self) -> int:
        """The number of instances that exist."""
        return sum(resource.kind == "instance" for resource in self.resources)


@dataclass(frozen=True)
class Known:
    """What this machine knows: its records, names of damaged records, and its owners.

    `owners` are the values of the owner's tag that count as ours.
    """

    records: tuple[ClusterRecord, ...]
    damaged: frozenset[str]
    owners: frozenset[str]

    def has(self, name: str, cluster_id: str, region: str) -> bool:
        """Return whether this machine has a record of the cluster, or may have one."""
        return name in self.damaged or any(
            (record.name, record.id, record.region) == (name, cluster_id, region)
            for record in self.records
        )


def judge_all(
    resources: Sequence[Resource], region: str, known: Known, now: datetime
) -> tuple[FoundCluster, ...]:
    """Return the clusters that the resources of a region belong to, by name and id."""
    clusters: dict[tuple[str, str], list[Resource]] = {}
    for resource in resources:
        clusters.setdefault((resource.cluster, resource.cluster_id), []).append(resource)
    return tuple(
        judge(clusters[place], region, known, now, resources)
        for place in sorted(clusters)
        if clusters[place]
    )


def judge(
    resources: Sequence[Resource],
    region: str,
    known: Known,
    now: datetime,
    region_resources: Sequence[Resource] = (),
) -> FoundCluster:
    """Return what the resources of one cluster are.

    Instances of other clusters among `region_resources` may use them.
    """
    first = resources[0]
    name, cluster_id = first.cluster, first.cluster_id
    owners = {resource.owner or UNKNOWN for resource in resources}
    verdict: Verdict = "orphaned"
    reasons: tuple[str, ...] = ()
    if known.has(name, cluster_id, region):
        verdict = "recorded"
    elif not cluster_id or not owners <= known.owners:
        verdict = "foreign"
    elif reasons := _doubts(resources, now, _users(resources, region_resources, known)):
        verdict = "doubtful"
    return FoundCluster(
        name=name,
        id=cluster_id,
        owner=", ".join(sorted(owners)),
        region=region,
        verdict=verdict,
        reasons=reasons,
        since=_iso(min(_dates(resources), default=None)),
        hourly_usd=sum(leftover_price(resource) or 0.0 for resource in resources),
        unpriced=_unpriced(resources),
        resources=tuple(_found_resource(resource) for resource in resources),
    )


def mounting_clusters(records: Iterable[ClusterRecord]) -> dict[str, str]:
    """Return the known clusters that mount a file system which they did not create, by its id."""
    mounting = ((record.name, record.resolved.existing_storage) for record in records)
    return {storage.id: name for name, storage in mounting if storage is not None}


def _users(
    resources: Sequence[Resource], region_resources: Sequence[Resource], known: Known
) -> str:
    """Return who uses the cluster's file systems, as a part of a sentence; empty if nobody.

    Users are clusters that this machine knows, and instances of others that are in a security group
    of the cluster: nodes join it to mount a file system that exists.
    """
    mounting, own = mounting_clusters(known.records), resources[0]
    names = dict.fromkeys(mounting[each.id] for each in resources if each.id in mounting)
    groups = {resource.id for resource in resources if resource.kind == "security group"}
    instances: list[str] = []
    for instance in region_resources:
        place = (instance.cluster, instance.cluster_id)
        if instance.kind != "instance" or place == (own.cluster, own.cluster_id):
            continue
        joined = {group["GroupId"] for group in instance.attributes.get("SecurityGroups", ())}
        if joined & groups and instance.cluster not in names:
            instances.append(instance.name or instance.id)
    mounts = [f"cluster {name} mounts it" for name in names]
    mounts += [f"{fold(instances)} can mount it"] if instances else []
    return "".join(f", {user}" for user in mounts)


def _doubts(resources: Sequence[Resource], now: datetime, users: str) -> tuple[str, ...]:
    """Return why another machine of ours may still use the cluster, or need its data."""
    alive = [resource for resource in resources if resource.state != "shutting-down"]
    reasons = _machines([resource for resource in alive if resource.kind == "instance"], now)
    stores = dict.fromkeys(
        resource.kind for resource in alive if KINDS[resource.kind].service in ("efs", "fsx")
    )
    reasons += [f"its {kind} may have data{users}" for kind in stores]
    dates = _dates(resources)
    if not dates:
        reasons.append("AWS does not report its age")
    elif max(dates) > now - YOUNG:
        reasons.append("a part of it is less than an hour old")
    return tuple(reasons)


def _machines(alive: Sequence[Resource], now: datetime) -> list[str]:
    """Return the doubt because of instances; none if the leases of all have ended long ago.

    `gpuctl extend` writes the tags before it moves a timer, so such machines are in use by nobody:
    they could not power off, or somebody has stopped them.
    """
    ends = [end for resource in alive if (end := end_of(resource))]
    if len(ends) < len(alive) or not alive:
        return ["its instances exist"] if alive else []
    last = max(ends)
    return [] if last < now - YOUNG else [f"its instances exist, until {last:%Y-%m-%d %H:%M} UTC"]


def _dates(resources: Collection[Resource]) -> list[datetime]:
    return [resource.since for resource in resources if resource.since is not None]


def _unpriced(resources: Sequence[Resource]) -> tuple[str, ...]:
    return tuple(
        dict.fromkeys(resource.kind for resource in resources if leftover_price(resource) is None)
    )


def _found_resource(resource: Resource) -> FoundResource:
    return FoundResource(
        resource.kind,
        resource.id,
        resource.name,
        resource.state,
        _iso(resource.since),
        leftover_price(resource),
    )


def _iso(moment: datetime | None) -> str | None:
    return None if moment is None else moment.astimezone(UTC).isoformat(timespec="seconds")
