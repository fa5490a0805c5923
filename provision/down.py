"""A cluster goes away, all of it, whatever state it is in."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from config.errors import InfraError, Interrupted
from config.progress import Progress, Reporter, silent
from config.target import Target
from infra.engine import find_engine
from infra.stack import Stack
from provision.account import with_credentials
from provision.aws import client
from provision.cost import spent_usd
from provision.lock import cluster_lock
from provision.record import forget, read, records, unknown, write
from provision.resources import Resource, find_all, find_instances, of_life_since
from provision.sweep import sweep


@dataclass(frozen=True)
class Teardown:
    """A cluster that is gone: what was removed, how long it was up and what it cost.

    `cost_usd` is None where a price is not known.
    """

    name: str
    removed: tuple[str, ...]
    seconds_up: float
    cost_usd: float | None


def down(name: str, target: Target, report: Reporter) -> Teardown:
    """Nothing of the cluster exists, in AWS, in Pulumi's state and on this machine.

    Pulumi removes what it knows, then what else carries the cluster's tag is removed. Raises
    InputError for a name of which nothing is known, with the clusters that there are.
    """
    record = read(name, target)
    if record is not None:
        target = replace(target, region=record.region)
    target = with_credentials(target)
    ec2 = client(target, "ec2")
    existing = find_all(target, name)
    stack = Stack(name, target, find_engine(report))
    if record is None and not existing and not stack.exists():
        tagged = {resource.cluster for resource in find_all(target, None)}
        raise unknown(name, tagged | {known.name for known in records(target)})
    with cluster_lock(name, f"gpuctl down {name}", target), _interruptible(name):
        if record is not None:
            write(record.now("destroying"), target)
        now = datetime.now(UTC)
        began = record.created if record else _first(existing, now)
        others = [resource for resource in existing if resource.kind != "instance"]
        billed = of_life_since([*find_instances(ec2, name), *others], began)
        removed: list[str] = []
        collect = _collecting(removed, report)
        killed = record is None or record.status in ("creating", "destroying")
        _destroy(stack, lambda: sweep(target, name, collect), collect, killed)
        stack.remove()
        now = datetime.now(UTC)
        forget(name, target)
    return Teardown(
        name=name,
        removed=tuple(removed),
        seconds_up=(now - began).total_seconds(),
        cost_usd=spent_usd(billed, now, record.resolved if record else None),
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
