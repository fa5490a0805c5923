"""The owner of a cluster: names are shared in an account, and a removal is for good."""

import re
from dataclasses import dataclass, replace
from datetime import datetime

from config.cluster.resolved import OWNER_TAG
from config.target import Target
from provision.aws.account import caller, owner_tag
from provision.aws.resources import Resource, find_all
from provision.state.store import ClusterStore

UNKNOWN = "unknown"
"""The owner of what has no owner's tag, or whose record has none."""

_GENERATED = re.compile(r"(arn:[^:]+:sts::\d+:assumed-role/[^/]+)/botocore-session-\d+")
"""A session of a role whose name nobody chose: botocore gives it one that has the time
(`AssumeRoleProvider` in botocore/credentials.py, 2026-11-26)."""


@dataclass(frozen=True)
class Ownership:
    """Who a cluster belongs to. `since` is None if AWS does not report it."""

    name: str
    id: str
    owner: str
    region: str
    since: datetime | None
    is_ours: bool

    @property
    def text(self) -> str:
        """The owner and the beginning in words: `belongs to ann since 2026-11-26 10:00 UTC`."""
        since = f" since {self.since:%Y-%m-%d %H:%M} UTC" if self.since else ""
        return f"belongs to {self.owner}{since}"


def ownership(resources: list[Resource], ours: str, region: str) -> Ownership:
    """Return who the resources of one cluster belong to; `ours` is this caller's owner tag."""
    owners = sorted({resource.owner or UNKNOWN for resource in resources})
    return Ownership(
        name=resources[0].cluster,
        id=resources[0].cluster_id,
        owner=", ".join(owners),
        region=region,
        since=min(
            (resource.since for resource in resources if resource.since is not None), default=None
        ),
        is_ours=all(is_same_owner(owner, ours) for owner in owners),
    )


def find_ownership(name: str, target: Target, cluster_id: str | None = None) -> Ownership | None:
    """Return who the cluster belongs to that `gpuctl down` would remove.

    None if there is none, or if several have the name and none is chosen. A cluster of which this
    machine alone has the record is ours: it was made here.
    """
    record = ClusterStore(target).last_known(name)
    if record is not None and cluster_id in (None, record.id):
        owner = record.resolved.tags.get(OWNER_TAG, UNKNOWN)
        is_ours = target.bucket is None or is_same_owner(owner, owner_tag(caller(target), target))
        return Ownership(name, record.id, owner, record.region, record.created, is_ours)
    if record is not None:
        target = replace(target, region=record.region)
    resources = [
        resource for resource in find_all(target, name) if cluster_id in (None, resource.cluster_id)
    ]
    if len({resource.cluster_id for resource in resources}) != 1:
        return None
    return ownership(resources, owner_tag(caller(target), target), target.region)


def is_same_owner(owner: str, other: str) -> bool:
    """Return whether two owners' tags are of one person, as far as AWS knows."""
    return _person(owner) == _person(other)


def _person(owner: str) -> str:
    generated = _GENERATED.fullmatch(owner)
    return generated[1] if generated else owner
