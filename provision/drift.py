"""The way of `gpuctl drift`: compare AWS with the state that the last `up` left."""

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial

from config.cluster.resolved import Resolved
from config.command_text import command_text
from config.errors import InputError
from config.progress import Progress, Reporter
from config.target import Target
from infra.stack.changes import Change
from infra.stack.installation import find_engine
from infra.stack.stack import Stack
from provision.aws.account import caller, check_account, resolve_credentials
from provision.aws.resources import KINDS, Resource, find_all
from provision.nodes.foreign_tags import foreign_tags, is_foreign
from provision.preflight.existing_storage import find_storage, storage_zones
from provision.state.store import ClusterStore


@dataclass(frozen=True)
class ForeignTag:
    """A tag that somebody else added to a resource, such as `VPC vpc-0123`."""

    resource: str
    key: str
    value: str


@dataclass(frozen=True)
class Drift:
    """The differences between AWS and the state of a cluster.

    `changes` are updates and deletions of resources in the state. `unknown` are resources with the
    cluster's tags that are not in the state, such as `volume vol-0123`. `foreign_tags` are tags
    that are not gpuctl's, on the other resources; they are no differences. `storage` says why nodes
    cannot mount the file system of `storage.shared.id` any more.
    """

    name: str
    id: str
    region: str
    changes: tuple[Change, ...]
    unknown: tuple[str, ...]
    foreign_tags: tuple[ForeignTag, ...] = ()
    storage: tuple[str, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Return whether AWS has what the state has, and the file system that the file names."""
        return not self.changes and not self.unknown and not self.storage


def drift(name: str, target: Target, report: Reporter) -> Drift:
    """Return how the cluster in AWS differs from the state; change nothing.

    Raises InputError if this machine has no record of the cluster, if a command is changing it, or
    if nothing of it is in the state.
    """
    store = ClusterStore(target)
    record = store.known_record(name)
    target = resolve_credentials(replace(target, region=record.region))
    check_account(name, record.account, caller(target).account)
    if store.is_locked(name):
        raise InputError(
            f"cluster '{name}' is being changed right now",
            "repeat this when that command has ended",
        )
    report(Progress("refresh", name, "running"))
    resolved = record.resolved
    if record.status == "ready":  # the last `up` has removed the tags of earlier files
        resolved = resolved.model_copy(update={"former_tags": ()})
    foreign = partial(is_foreign, resolved)
    stack_drift = Stack(name, target, find_engine(report)).drift(foreign)
    if stack_drift is None:
        raise InputError(
            f"Pulumi's state has nothing of cluster '{name}'",
            f"see {command_text('gpuctl status {}', name)} for what exists",
        )
    tagged = find_all(target, name, cluster_id=record.id)
    report(Progress("refresh", name, "done"))
    unknown = _unknown(tagged, stack_drift.ids)
    others = [
        ForeignTag(f"{resource.kind} {resource.id}", key, value)
        for resource in tagged
        if resource not in unknown and KINDS[resource.kind].service != "guardduty"
        for key, value in foreign_tags(resolved, resource.tags).items()
    ]
    return Drift(
        name,
        record.id,
        record.region,
        stack_drift.changes,
        tuple(f"{resource.kind} {resource.id}" for resource in unknown),
        tuple(others),
        tuple(_storage_problems(resolved, target)),
    )


def _storage_problems(resolved: Resolved, target: Target) -> Iterator[str]:
    """Yield why the file system that the file names cannot be mounted in the cluster's zone."""
    try:
        storage = find_storage(target, resolved.cluster)
        if storage is not None:
            storage_zones(storage, (resolved.zone,))
    except InputError as error:
        yield error.message


def _unknown(tagged: Sequence[Resource], ids: Collection[str]) -> list[Resource]:
    """Return the resources that the state does not have, nor an instance in it.

    Interfaces and volumes of nodes come from the launch template. GuardDuty's are AWS's own.
    """
    return [
        resource
        for resource in tagged
        if resource.id not in ids
        and KINDS[resource.kind].service != "guardduty"
        and not _instances(resource) & set(ids)
    ]


def _instances(resource: Resource) -> set[str]:
    """Return the ids of the instances to which an interface or a volume is attached."""
    attributes = resource.attributes
    attached = [attributes.get("Attachment", {}), *attributes.get("Attachments", ())]
    return {str(volume["InstanceId"]) for volume in attached if "InstanceId" in volume}
