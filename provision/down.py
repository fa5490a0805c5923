"""The way of `gpuctl down`: remove a cluster completely, whatever state it is in."""

import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from functools import partial

from config.command_text import command_text
from config.errors import CloudError, InfraError, InputError, Interrupted, StateError
from config.files import disk_errors, storage_problem
from config.progress import Progress, Reporter, silent
from config.target import Target
from infra.stack.engine_events import DamagedState
from infra.stack.installation import find_engine
from infra.stack.stack import Stack
from infra.stack.workspace import backend_folder, remove_files
from nodes.openssh import remove_hosts
from provision.aws.account import caller, check_account, resolve_credentials
from provision.aws.clients import client
from provision.aws.resources import (
    KINDS,
    Resource,
    find_all,
    find_instances,
)
from provision.billing.cost import spent_usd
from provision.billing.ledger import keep as keep_cost
from provision.permissions.actions import Feature, needed
from provision.permissions.check import missing_permissions
from provision.removal.sweep import sweep
from provision.state.record import (
    ClusterRecord,
    unknown_cluster,
)
from provision.state.shared import Superseded
from provision.state.store import ClusterStore

SETTLE_S = 10.0
"""The time in which EC2's lists get to know a resource whose creation a killed command requested.
AWS promises no time, and advises to ask from seconds to five minutes later
(https://docs.aws.amazon.com/ec2/latest/devguide/eventual-consistency.html, 2026-11-23)."""


@dataclass(frozen=True)
class Teardown:
    """The report of a removal: the removed resources, the cluster's age and its cost.

    `cost_usd` is None if a price is not known. `id` is the cluster's, empty if somebody has removed
    its tag. `warnings` are about records that could not be written or removed. `is_of_hosts`: the
    machines were not rented, and `removed` are their addresses; `others` use the cluster on.
    """

    name: str
    removed: tuple[str, ...]
    seconds_up: float
    cost_usd: float | None
    id: str = ""
    region: str = ""
    warnings: tuple[str, ...] = ()
    is_of_hosts: bool = False
    others: tuple[str, ...] = ()


def down(name: str, target: Target, report: Reporter, cluster_id: str | None = None) -> Teardown:
    """Remove the cluster from AWS, from Pulumi's state and from this machine.

    Pulumi removes the resources that it knows; every other resource with the cluster's tags is
    removed after that. Records are best effort: a full disk, or a folder that cannot be written,
    keeps no resource. Raises InputError if no cluster has this name; the message lists those that
    exist. Raises InputError if several clusters have it, this machine has a record of none of them,
    and `cluster_id` chooses none.
    """
    store = ClusterStore(target)
    record = store.last_known(name)
    if record is not None:
        target = replace(target, region=record.region)
    target = resolve_credentials(target)
    store = store.at(target)
    if record is not None:
        check_account(name, record.account, caller(target).account)
    ec2 = client(target, "ec2")
    existing = find_all(target, name)
    cluster_id = _choose_id(name, record, existing, cluster_id)
    existing = [resource for resource in existing if resource.cluster_id == cluster_id]
    _check_permissions(existing, target)
    if record is not None and cluster_id != record.id:
        return _remove_namesake(name, cluster_id, existing, target, report)
    warnings: list[str] = []
    stack = _stack(name, target, report, warnings)
    if record is None and not existing and not _is_in_state(stack):
        if stack is not None:
            stack.remove()  # the files of a plan that was never carried out, or of `exists` above
        raise _unknown(name, store)
    lock = store.lock(name, f"gpuctl down {name}", is_removal=True)
    with lock, _interruptible(name):
        if record is not None and stack is not None:
            with _best_effort(warnings):
                store.write(record.now("destroying"))
        now = datetime.now(UTC)
        began = record.created if record else _oldest(existing, now)
        others = [resource for resource in existing if resource.kind != "instance"]
        billed = [*find_instances(ec2, name, cluster_id), *others]
        removed: list[str] = []
        collect = _collector(removed, report)
        killed = record is None or record.status in ("creating", "destroying")
        killed = killed or any(KINDS[resource.kind].service == "guardduty" for resource in existing)
        # An `up` that was killed just now: EC2 may not list its last resources yet.
        settled = time.monotonic() + (SETTLE_S if record and record.status == "creating" else 0)
        if stack is not None:
            sweep_all = partial(sweep, target, name, cluster_id, collect)
            _destroy(stack, sweep_all, collect, killed, target, warnings)
        else:
            sweep(target, name, cluster_id, collect)
        if (left := settled - time.monotonic()) > 0:
            time.sleep(left)
        # Also a Pulumi engine that outlived its client may have created a resource until now.
        sweep(target, name, cluster_id, collect)
        now = datetime.now(UTC)
        spent = spent_usd(billed, now, record.resolved if record else None)
        records_left = (
            partial(_remove_state, stack, name, target),
            partial(remove_hosts, name, store.folder(name)),
            partial(store.forget, name),
            partial(keep_cost, record, now, spent, target),  # a full disk now has room for a line
        )
        for remove in records_left:
            with _best_effort(warnings):
                remove()
    return Teardown(
        name=name,
        removed=tuple(removed),
        seconds_up=(now - began).total_seconds(),
        cost_usd=spent,
        id=cluster_id,
        region=target.region,
        warnings=tuple(dict.fromkeys(warnings)),
    )


_FEATURES: Mapping[str, Feature] = {
    "VPC": "network",
    "EFS file system": "efs",
    "FSx file system": "fsx-lustre",
    "IAM role": "role",
    "instance profile": "role",
}
"""The kinds of resources that only clusters with a feature have."""


def _check_permissions(existing: list[Resource], target: Target) -> None:
    """Raise InputError if the credentials may not remove what exists; ask before anything is.

    Where AWS does not say it, the requests will.
    """
    if not target.check_permissions or not existing:
        return
    features = {_FEATURES[resource.kind] for resource in existing if resource.kind in _FEATURES}
    who = caller(target)
    with suppress(CloudError):  # who may not ask IAM hears it from the requests
        missing_permissions(target, who, needed(("down",), features)).check()


def _stack(name: str, target: Target, report: Reporter, warnings: list[str]) -> Stack | None:
    """Return the cluster's stack; None if Pulumi's engine is missing, or its disk is full.

    Then the cluster's resources are found and removed by their tags.
    """
    problem = storage_problem(target.state)
    if problem:
        warnings.append(f"{problem}; what exists was found by its tags")
        return None
    try:
        return Stack(name, target, find_engine(report))
    except (InfraError, StateError) as error:
        warnings.append(f"{error.message}; what exists was found by its tags")
        return None


def _is_in_state(stack: Stack | None) -> bool:
    """Return whether Pulumi knows the cluster; a state that is not read is removed too."""
    try:
        return stack is not None and stack.exists()
    except DamagedState:
        return True


def _remove_state(stack: Stack | None, name: str, target: Target) -> None:
    """Remove Pulumi's state of the cluster, without Pulumi's engine if there is no stack."""
    if stack is not None:
        stack.remove()
        return
    if backend_folder(target) is None:
        raise StateError(
            f"Pulumi's state of {name} is still in {target.backend_url}",
            "make room on this machine's disk; then"
            f" {command_text('gpuctl down {}', name)} removes it",
        )
    remove_files(name, target)


@contextmanager
def _best_effort(warnings: list[str]) -> Iterator[None]:
    """Add a failure of the block to the warnings: no record is a condition of a removal.

    Raises Superseded if somebody else has changed the cluster.
    """
    try:
        with disk_errors():
            yield
    except Superseded:
        raise
    except (StateError, CloudError, InfraError) as error:
        warnings.append(str(error))


def _unknown(name: str, store: ClusterStore) -> InputError:
    """Return the error for a name that no cluster has; it lists those that exist."""
    tagged = {resource.cluster for resource in find_all(store.target, None)}
    return unknown_cluster(name, tagged | {known.name for known in store.records()})


def _remove_namesake(
    name: str, cluster_id: str, existing: list[Resource], target: Target, report: Reporter
) -> Teardown:
    """Remove a cluster that has the same name as one of this machine's; keep the latter."""
    began = _oldest(existing, datetime.now(UTC))
    with _interruptible(name):
        removed = sweep(target, name, cluster_id, report)
    now = datetime.now(UTC)
    return Teardown(
        name=name,
        removed=removed,
        seconds_up=(now - began).total_seconds(),
        cost_usd=spent_usd(existing, now, None),
        id=cluster_id,
        region=target.region,
    )


def _choose_id(
    name: str, record: ClusterRecord | None, resources: list[Resource], given_id: str | None
) -> str:
    """Return the id of the cluster to remove: the requested one, this machine's, or the only one.

    Raises InputError with the ids and owners if several clusters are left, or none.
    """
    if record is not None and given_id in (None, record.id):
        return record.id
    owners = {resource.cluster_id: resource.owner or "unknown" for resource in resources}
    if given_id in owners or (given_id is None and len(owners) <= 1):
        return next(iter(owners), "") if given_id is None else given_id
    which = "; ".join(
        f"{cluster_id or 'without id'}: {owners[cluster_id]}" for cluster_id in sorted(owners)
    )
    if given_id is None:
        raise InputError(
            f"{len(owners)} clusters are called '{name}', and this machine has no record of any",
            f"choose with --id: {which}",
        )
    raise InputError(
        f"no cluster '{name}' has the id {given_id}", f"there are: {which}" if which else ""
    )


def _destroy(
    stack: Stack,
    sweep_all: Callable[[], object],
    report: Reporter,
    killed: bool,
    target: Target,
    warnings: list[str],
) -> None:
    """Remove the resources that Pulumi knows, and all others of the cluster.

    The sweep comes first if a command was killed, if GuardDuty has put something into the VPC, or
    if Pulumi fails: resources that Pulumi does not know block the removal of those that it knows,
    and it would retry for twenty minutes. After the sweep Pulumi only updates its state, for which
    a disk may have no room.
    """
    if not killed:
        try:
            stack.destroy(report)
        except InfraError:
            killed = True
    if killed:
        sweep_all()
        try:
            stack.destroy(silent)
        except DamagedState:
            pass  # the sweep has removed everything by its tags
        except InfraError as error:
            if not storage_problem(target.state):
                raise
            warnings.append(error.message)


def _collector(removed: list[str], report: Reporter) -> Reporter:
    """Return a reporter that also adds each removed resource to `removed`."""

    def collect(progress: Progress) -> None:
        if progress.stage == "destroy" and progress.state == "done":
            removed.append(progress.subject)
        report(progress)

    return collect


@contextmanager
def _interruptible(name: str) -> Iterator[None]:
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(
            f"interrupted: parts of cluster '{name}' still exist",
            f"{command_text('gpuctl down {}', name)} removes the rest",
        ) from None


def _oldest(resources: list[Resource], now: datetime) -> datetime:
    """Return the creation time of the oldest resource, or `now` if AWS gives none."""
    return min((r.since for r in resources if r.since is not None), default=now)
