"""The way of `gpuctl up`: plan the cluster, record it, create it, make its nodes ready."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime

from config.cluster.cluster_file import Cluster
from config.cluster.resolved import OWNER_TAG, Resolved
from config.command_text import command_text
from config.errors import BrokenNodes, CloudError, GpuctlError, InputError, Interrupted, StateError
from config.files import disk_errors
from config.folded_names import fold
from config.progress import Progress, Reporter
from config.target import Target
from infra.fleet import Fleet
from infra.stack.changes import Plan
from infra.stack.installation import find_engine, installed_engine
from infra.stack.stack import Stack
from nodes.inventory import Inventory
from nodes.openssh import refresh_hosts
from provision.access import check_new_machines, install_grants
from provision.aws.account import resolve_credentials
from provision.aws.clients import client, request_pool
from provision.aws.resources import Resource, find_all
from provision.billing.cost import access_prices, hourly_usd
from provision.billing.prices import total_usd
from provision.lease import note_ends, note_launches
from provision.nodes.foreign_tags import existing_tags, keep_foreign_tags
from provision.nodes.launch import FleetLaunch
from provision.nodes.spares import Boot, Spares
from provision.preflight.image_software import software_rows
from provision.preflight.preflight import resolve
from provision.preflight.replacements import (
    OlderSettings,
    differing_versions,
    older_settings,
    replacement_reasons,
)
from provision.setup.bootstrap import bootstrap
from provision.setup.machines import BASTION
from provision.setup.nodes_key import NodesKey
from provision.state.ownership import ownership
from provision.state.record import (
    ClusterRecord,
    new_record,
)
from provision.state.store import ClusterStore


@dataclass(frozen=True)
class FleetPlan:
    """A preview of `up`, and what the whole cluster then costs per hour (None: not known).

    `replaced` maps the name of each instance that is replaced to the reason. `older` are the nodes
    whose launch settings are not those of a new one, `replace` those that somebody has named.
    """

    resolved: Resolved
    plan: Plan
    hourly_usd: float | None
    replaced: Mapping[str, str] = field(default_factory=dict)
    older: Mapping[str, OlderSettings] = field(default_factory=dict)
    replace: tuple[str, ...] = ()

    @property
    def kept(self) -> dict[str, OlderSettings]:
        """The nodes that keep older settings, because nobody has named them."""
        return {name: node for name, node in self.older.items() if name not in self.replaced}

    @property
    def access_prices(self) -> tuple[tuple[str, float | None], ...]:
        """Return the parts of the access to the nodes, each with its name and dollars per hour."""
        return access_prices(self.resolved)

    @property
    def total_usd(self) -> float | None:
        """Return the cost during `lifetime.max`, None without a lifetime or price."""
        return total_usd(self.resolved, self.hourly_usd)

    @property
    def software(self) -> tuple[tuple[str, str], ...]:
        """Return names and versions of the software on each node, as far as they are known."""
        return software_rows(self.resolved)

    def check_replacement(self) -> None:
        """Raise InputError if nodes would keep settings in which all nodes must agree."""
        stuck = {name: node.reason for name, node in self.kept.items() if not node.may_stay}
        if not stuck:
            return
        why = "; ".join(dict.fromkeys(stuck.values()))
        name = self.resolved.cluster.name
        raise InputError(
            f"{fold(stuck)} of {name} cannot stay as {'it is' if len(stuck) == 1 else 'they are'}:"
            f" {why}",
            f"{REPLACE_ALL} makes new machines of all nodes: what is on their disks is lost, and"
            " capacity that is given back may not come again",
        )


REPLACE_ALL = "--replace all"
ALL = "all"


def plan(
    cluster: Cluster,
    target: Target,
    report: Reporter,
    *,
    refresh: bool = False,
    replace: Sequence[str] = (),
) -> FleetPlan:
    """Check the cluster file against AWS and preview its resources; change nothing in AWS.

    With `refresh` new machines get the launch settings of this gpuctl
    (provision/preflight/replacements.py). The nodes in `replace` get new machines, `all` for each
    node. Raises InputError or CloudError with every problem at once.
    """
    report(Progress("preflight", cluster.name, "running"))
    target = resolve_credentials(target)
    store = ClusterStore(target)
    engine, early = installed_engine(), None
    if engine is None:
        # Check the file before the minutes in which Pulumi's engine is downloaded.
        early, engine = resolve(cluster, store, refresh=refresh), find_engine(report)
    stack = Stack(cluster.name, target, engine)
    named = _named(replace, stack)
    with (
        Stack(cluster.name, target, engine).start_preview(named) as preview,
        request_pool(2) as pool,
    ):
        before = store.record(cluster.name)
        unrecorded = None if before else pool.submit(find_all, target, cluster.name)
        last = before.resolved if before else None
        tags = pool.submit(existing_tags, last, target, stack)
        resolved = early or resolve(cluster, store, refresh=refresh)
        if unrecorded and unrecorded.result() and not stack.exists():
            raise _name_taken(resolved, unrecorded.result())
        resolved = keep_foreign_tags(resolved, before, tags.result())
        report(Progress("preflight", cluster.name, "done", resolved.zone))
        changes = preview(resolved)
        was = last.cluster if last else None
        versions = differing_versions(client(target, "ec2"), changes)
        older = older_settings(changes, was, cluster, versions, refresh=refresh)
        why = replacement_reasons(changes, was, cluster, older, refresh=refresh)
        return FleetPlan(resolved, changes, hourly_usd(resolved), why, older, named)


def _named(replace: Sequence[str], stack: Stack) -> tuple[str, ...]:
    """Return the nodes of these names, all for `all`; InputError for a name that no node has."""
    if not replace:
        return ()
    known = stack.nodes()
    if ALL in replace:
        return tuple(known)
    for name in replace:
        if name not in known:
            has = f"it has {fold(known)}" if known else "it has none yet"
            raise InputError(f"--replace: cluster {stack.name} has no node {name}", has)
    return tuple(dict.fromkeys(replace))


def up(
    fleet_plan: FleetPlan,
    target: Target,
    report: Reporter,
    key: NodesKey | None = None,
    boot: Boot = bootstrap,
) -> Inventory:
    """Carry out the plan, wait until every node is ready for a job, and return the inventory.

    The cluster's record is on disk before anything is created, and keeps the outcome. After a
    failure the resources are kept for inspection; the error says how to remove them. `key` is what
    `check_new_machines` returned to the caller; `boot` makes the launched nodes ready.
    """
    target = resolve_credentials(target)
    resolved = fleet_plan.resolved
    name = resolved.cluster.name
    new = fleet_plan.plan.new_machines
    store = ClusterStore(target)
    if new and key is None:
        key = check_new_machines(name, store, new, resolved.bastion_user_data)
    with store.lock(name, "gpuctl up"):
        record = _begin(resolved, store)
        stack = Stack(name, target, find_engine(report))
        with _explain_remains(name, store), _record_failure(record, stack, store):
            launch = FleetLaunch(
                resolved,
                fleet_plan.plan,
                stack,
                target,
                on_zone=lambda placed: store.write(new_record(placed, record.created, record)),
                replace=fleet_plan.replace,
            )
            fleet = stack.fleet() if fleet_plan.plan.is_empty else None
            if fleet is None:
                if fleet_plan.plan.ends_machines:
                    # Nothing can run until the nodes are ready again.
                    store.remove_inventory(name)
                fleet = launch.carry_out(report)
                record = store.record(name) or record
                note_launches(record, target)
            # The record has the zone that had capacity.
            with _whole_or_nothing(launch, report):
                spares = Spares(record.resolved, stack, target, key, BASTION in new, boot)
                inventory = _make_ready(fleet, spares, store, report)
                record = note_ends(inventory, record, target)
            store.save_inventory(inventory)
            refresh_hosts(inventory)
            store.write(install_grants(inventory, record, store).now("ready"))
        return inventory


def _make_ready(fleet: Fleet, spares: Spares, store: ClusterStore, report: Reporter) -> Inventory:
    """Make the nodes ready; the host keys that were pinned are shared, also after a failure."""
    name = spares.resolved.cluster.name
    try:
        inventory = spares.make_ready(fleet, report)
    except GpuctlError:
        with suppress(StateError, CloudError):  # the first error matters
            store.share_host_keys(name)
        raise
    store.share_host_keys(name)
    return inventory


@contextmanager
def _whole_or_nothing(launch: FleetLaunch, report: Reporter) -> Iterator[None]:
    """Remove a new cluster that asks for spare attempts if the block fails; name the remedy.

    Other clusters stay for inspection: an older one may have data, or a run.
    """
    cluster = launch.resolved.cluster
    try:
        yield
    except Interrupted:
        raise
    except GpuctlError as error:
        if cluster.capacity.spare_attempts and launch.plan.is_new:
            if remains := launch.roll_back(error, report):
                raise error.with_added_hint(remains) from error
        elif isinstance(error, BrokenNodes):
            remedy = (
                f"{command_text('gpuctl heal {}', cluster.name)}"
                " replaces nodes that are not fit for jobs"
            )
            raise error.with_added_hint(remedy, "\n") from error
        raise


def _begin(resolved: Resolved, store: ClusterStore) -> ClusterRecord:
    before = store.record(resolved.cluster.name)
    record = new_record(resolved, before.created if before else datetime.now(UTC), before)
    store.write(record)
    return record


@contextmanager
def _record_failure(record: ClusterRecord, stack: Stack, store: ClusterStore) -> Iterator[None]:
    """Write a failure of the block into the cluster's record; drop the record if nothing exists."""
    name = record.name
    try:
        with disk_errors():
            yield
    except KeyboardInterrupt:
        with suppress(CloudError):  # the team's bucket may be out of reach
            store.write((store.record(name) or record).now("failed", "interrupted"))
        raise
    except GpuctlError as error:
        why = error.message.partition("\n")[0]
        # The disk may be full or the bucket out of reach, and `error` may report that already.
        with suppress(StateError, CloudError):
            store.write((store.record(name) or record).now("failed", why))
        if not isinstance(error, Interrupted) and _nothing_exists(record, stack, store.target):
            store.forget(name)
        raise


@contextmanager
def _explain_remains(name: str, store: ClusterStore) -> Iterator[None]:
    """Add to an error of the block what still exists and how to remove it.

    Ctrl-C becomes Interrupted. The cluster's record is gone if nothing exists (_record_failure).
    """
    kept = f"what exists is kept for inspection; {command_text('gpuctl down {}', name)} removes it"
    try:
        yield
    except KeyboardInterrupt:
        raise Interrupted(f"interrupted: cluster '{name}' is not ready", kept) from None
    except Interrupted:
        raise  # the Pulumi engine's hint names what exists
    except GpuctlError as error:
        try:
            remains = kept if store.record(name) else "nothing of it is left"
        except CloudError:
            remains = kept  # the team's bucket is out of reach
        raise error.with_added_hint(remains, "\n") from error


def _nothing_exists(record: ClusterRecord, stack: Stack, target: Target) -> bool:
    """Return whether Pulumi and AWS know no resource of the cluster; False if one cannot answer."""
    try:
        return not stack.exists() and not find_all(target, record.name, cluster_id=record.id)
    except GpuctlError:
        return False


def _name_taken(resolved: Resolved, resources: list[Resource]) -> InputError:
    """Return the error that the name is another cluster's: whose, since when, and what to do."""
    name, ours = resolved.cluster.name, resolved.tags[OWNER_TAG]
    ids = sorted({node.cluster_id for node in resources})
    taken = [
        ownership(
            [resource for resource in resources if resource.cluster_id == cluster_id],
            ours,
            resolved.region,
        )
        for cluster_id in ids
    ]
    whose = "; ".join(f"{cluster.text} (id {cluster.id or 'none'})" for cluster in taken)
    others = sorted({cluster.owner for cluster in taken if not cluster.is_ours})
    of_it = f"resources of a cluster '{name}' exist"
    count = (
        f"1 resource of a cluster '{name}' exists"
        if len(resources) == 1
        else f"{len(resources)} {of_it}"
    )
    remedy = (
        f"choose another name in the cluster file, or ask {', '.join(others)} to remove it"
        if others
        else "choose another name in the cluster file, go on with it where it was made, or remove"
        f" it: {command_text('gpuctl down {}', name)}"
    )
    return InputError(
        f"{count} in {resolved.region}, but this machine has no record of it: it {whose}",
        remedy,
    )
