"""A cluster comes up: planned, written down, made, and made ready."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.errors import GpuctlError, InputError, Interrupted, StateError
from config.files import full_disks
from config.progress import Progress, Reporter
from config.target import Target
from infra.pulumi_engine.changes import Plan
from infra.pulumi_engine.installation import find_engine, installed_engine
from infra.pulumi_engine.stack import Stack
from nodes.inventory import Inventory, save
from provision.aws.account import resolve_credentials
from provision.aws.concurrency import request_pool
from provision.aws.resources import Resource, find_all
from provision.costs.cost import hourly_usd
from provision.launch.launch import Launch
from provision.preflight.preflight import resolve
from provision.preflight.replacements import replacement_reasons
from provision.records.cluster_lock import cluster_lock
from provision.records.record import ClusterRecord, folder, forget, new_record, read, write
from provision.setup.bootstrap import bootstrap


@dataclass(frozen=True)
class FleetPlan:
    """What `up` would do, and what the whole fleet then costs per hour (None: not known).

    `replaced` says why each instance is replaced that is.
    """

    resolved: Resolved
    plan: Plan
    hourly_usd: float | None
    replaced: Mapping[str, str] = field(default_factory=dict)


def plan(cluster: Cluster, target: Target, report: Reporter, *, refresh: bool = False) -> FleetPlan:
    """Everything is asked and previewed; in AWS nothing changed.

    With `refresh` what the machines were launched with is renewed
    (provision/preflight/launch_pins.py). Raises InputError or CloudError with every problem at
    once.
    """
    report(Progress("preflight", cluster.name, "running"))
    target = resolve_credentials(target)
    engine, early = installed_engine(), None
    if engine is None:
        # Complaints come before the minutes in which an engine is made.
        early, engine = resolve(cluster, target, refresh=refresh), find_engine(report)
    with Stack(cluster.name, target, engine).start_preview() as preview, request_pool(1) as pool:
        found = pool.submit(_unrecorded, cluster.name, target)
        resolved = early or resolve(cluster, target, refresh=refresh)
        if found.result() and not Stack(cluster.name, target, engine).exists():
            raise _taken(resolved, found.result())
        report(Progress("preflight", cluster.name, "done", resolved.zone))
        changes, before = preview(resolved), read(cluster.name, target)
        was = before.resolved.cluster if before else None
        why = replacement_reasons(changes, was, cluster, refresh=refresh)
        return FleetPlan(resolved, changes, hourly_usd(resolved), why)


def up(fleet_plan: FleetPlan, target: Target, report: Reporter) -> Inventory:
    """The cluster is as planned, and every node is ready for a job.

    Its record is on disk before anything is made, and says afterwards how it went. When this
    fails, what was made stays for a look; the error says how to remove it.
    """
    target = resolve_credentials(target)
    resolved = fleet_plan.resolved
    name = resolved.cluster.name
    with cluster_lock(name, "gpuctl up", target):
        record = _begin(resolved, target)
        stack = Stack(name, target, find_engine(report))
        place = folder(name, target)
        with _told_in(record, stack, target):
            fleet = stack.fleet() if fleet_plan.plan.is_empty else None
            if fleet is None:
                if not fleet_plan.plan.only_adds:
                    # Until the nodes are ready again there is nothing to run on.
                    (place / "inventory.json").unlink(missing_ok=True)
                fleet = Launch(
                    resolved,
                    fleet_plan.plan,
                    stack,
                    target,
                    settled=lambda there: write(new_record(there, record.created), target),
                ).carry_out(report)
                record = read(name, target) or record
                resolved = record.resolved  # in the zone that had capacity
            inventory = bootstrap(resolved, fleet, place, target, report)
        save(inventory, place / "inventory.json")
        write(record.now("ready"), target)
        return inventory


def _begin(resolved: Resolved, target: Target) -> ClusterRecord:
    before = read(resolved.cluster.name, target)
    record = new_record(resolved, before.created if before else datetime.now(UTC))
    write(record, target)
    return record


@contextmanager
def _told_in(record: ClusterRecord, stack: Stack, target: Target) -> Iterator[None]:
    """What goes wrong is in the record, and its message says how to remove what exists."""
    name = record.name
    remains = f"what exists stays for a look; `gpuctl down {name}` removes it"
    try:
        with full_disks():
            yield
    except KeyboardInterrupt:
        write((read(name, target) or record).now("failed", "interrupted"), target)
        raise Interrupted(f"interrupted: cluster '{name}' is not ready", remains) from None
    except GpuctlError as error:
        failed = (read(name, target) or record).now("failed", error.message.partition("\n")[0])
        with suppress(StateError):  # a full disk, of which `error` may speak itself
            write(failed, target)
        if not isinstance(error, Interrupted):
            if _made_nothing(record, stack, target):
                forget(name, target)
                remains = "nothing was made"
            error.hint = f"{error.hint}\n{remains}" if error.hint else remains
        raise


def _made_nothing(record: ClusterRecord, stack: Stack, target: Target) -> bool:
    """Whether neither Pulumi nor AWS knows of anything; False where they cannot be asked."""
    try:
        return not stack.exists() and not find_all(target, record.name, cluster_id=record.id)
    except GpuctlError:
        return False


def _unrecorded(name: str, target: Target) -> list[Resource]:
    """What exists of a cluster that this machine has no record of."""
    return [] if read(name, target) else find_all(target, name)


def _taken(resolved: Resolved, found: list[Resource]) -> InputError:
    name = resolved.cluster.name
    owners = sorted({one.owner for one in found if one.owner})
    whose = f" of {', '.join(owners)}" if owners else ""
    return InputError(
        f"{len(found)} resources of a cluster '{name}'{whose} exist in {resolved.region},"
        " but no record of it on this machine",
        f"choose another name, or remove them: `gpuctl down {name}`",
    )
