"""A cluster goes away, all of it, whatever state it is in."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from config.errors import InfraError, InputError, Interrupted
from config.progress import Progress, Reporter, silent
from config.target import Target
from infra.pulumi_engine.failures import DamagedState
from infra.pulumi_engine.installation import find_engine
from infra.pulumi_engine.stack import Stack
from provision.aws.account import caller, check_account, resolve_credentials
from provision.aws.clients import client
from provision.aws.resources import Resource, existing_or_ended_since, find_all, find_instances
from provision.costs.cost import spent_usd
from provision.records.cluster_lock import cluster_lock
from provision.records.record import ClusterRecord, forget, read, records, unknown_cluster, write
from provision.removal.sweep import sweep


@dataclass(frozen=True)
class Teardown:
    """A cluster that is gone: what was removed, how long it was up and what it cost.

    `cost_usd` is None where a price is not known.
    """

    name: str
    removed: tuple[str, ...]
    seconds_up: float
    cost_usd: float | None


def down(name: str, target: Target, report: Reporter, cluster_id: str | None = None) -> Teardown:
    """Remove the cluster, from AWS, from Pulumi's state and from this machine.

    Pulumi removes what it knows, then what else carries the cluster's tags is removed. Raises
    InputError for a name of which nothing is known, with the clusters that there are, and for one
    that several clusters have, none of them this machine's and none named by `cluster_id`.
    """
    record = read(name, target)
    if record is not None:
        target = replace(target, region=record.region)
    target = resolve_credentials(target)
    if record is not None:
        check_account(name, record.account, caller(target).account)
    ec2 = client(target, "ec2")
    existing = find_all(target, name)
    cluster_id = _chosen(name, record, existing, cluster_id)
    existing = [resource for resource in existing if resource.cluster_id == cluster_id]
    if record is not None and cluster_id != record.id:
        return _of_another(name, cluster_id, existing, target, report)
    stack = Stack(name, target, find_engine(report))
    if record is None and not existing and not stack.exists():
        stack.remove()  # a plan that was never carried out, or what the question left here
        tagged = {resource.cluster for resource in find_all(target, None)}
        raise unknown_cluster(name, tagged | {known.name for known in records(target)})
    with cluster_lock(name, f"gpuctl down {name}", target), _interruptible(name):
        if record is not None:
            write(record.now("destroying"), target)
        now = datetime.now(UTC)
        began = record.created if record else _first(existing, now)
        others = [resource for resource in existing if resource.kind != "instance"]
        billed = existing_or_ended_since([*find_instances(ec2, name, cluster_id), *others], began)
        removed: list[str] = []
        collect = _collecting(removed, report)
        killed = record is None or record.status in ("creating", "destroying")
        _destroy(stack, lambda: sweep(target, name, cluster_id, collect), collect, killed)
        stack.remove()
        now = datetime.now(UTC)
        forget(name, target)
    return Teardown(
        name=name,
        removed=tuple(removed),
        seconds_up=(now - began).total_seconds(),
        cost_usd=spent_usd(billed, now, record.resolved if record else None),
    )


def _of_another(
    name: str, cluster_id: str, existing: list[Resource], target: Target, report: Reporter
) -> Teardown:
    """Remove a cluster that has the name of one of this machine's, which stays as it is."""
    began = _first(existing, datetime.now(UTC))
    with _interruptible(name):
        removed = sweep(target, name, cluster_id, report)
    now = datetime.now(UTC)
    return Teardown(name, removed, (now - began).total_seconds(), spent_usd(existing, now, None))


def _chosen(
    name: str, record: ClusterRecord | None, found: list[Resource], asked: str | None
) -> str:
    """The id of the cluster that is meant: this machine's, or else the only one, or the one asked.

    InputError with ids and owners where that leaves several, or none.
    """
    if record is not None and asked in (None, record.id):
        return record.id
    owners = {one.cluster_id: one.owner or "unknown" for one in found}
    if asked in owners or (asked is None and len(owners) <= 1):
        return next(iter(owners), "") if asked is None else asked
    which = "; ".join(f"{one or 'without id'}: {owners[one]}" for one in sorted(owners))
    if asked is None:
        raise InputError(
            f"{len(owners)} clusters are called '{name}', none of them this machine's",
            f"choose with --id: {which}",
        )
    raise InputError(
        f"no cluster '{name}' has the id {asked}", f"there are: {which}" if which else ""
    )


def _destroy(stack: Stack, sweep_all: Callable[[], object], report: Reporter, killed: bool) -> None:
    """Pulumi's resources are gone, and the rest too.

    After a kill, and where Pulumi's state is not AWS's any more, the sweep goes first: what Pulumi
    does not know holds fast what it knows, and it would try in vain for twenty minutes. Pulumi
    then only learns that all is gone.
    """
    if not killed:
        try:
            stack.destroy(report)
        except InfraError:
            killed = True
    if killed:
        sweep_all()
        with suppress(DamagedState):  # Pulumi knows nothing any more: all goes by its tags
            stack.destroy(silent)
    # An engine that outlived its client may have made something until now.
    sweep_all()


def _collecting(removed: list[str], report: Reporter) -> Reporter:
    """Reports, and keeps what was removed."""

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
            f"`gpuctl down {name}` goes on where this ended",
        ) from None


def _first(resources: list[Resource], now: datetime) -> datetime:
    """When the oldest of them came to be."""
    return min((r.since for r in resources if r.since is not None), default=now)
