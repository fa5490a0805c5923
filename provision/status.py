"""The status of every cluster: what exists in AWS, compared with this machine's records."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Literal

from config.cluster.resolved import OWNER_TAG
from config.command_text import command_text
from config.target import Target
from provision.aws.account import OTHER_ACCOUNT, caller
from provision.aws.clients import client
from provision.aws.instances import TAKEN_BACK, end_of, notices
from provision.aws.resources import (
    ALIVE,
    KINDS,
    Resource,
    exists,
    find_all,
    find_instances,
)
from provision.billing.cost import budget_warning, daily_usd, leftover_price, price_of, spent_usd
from provision.capacity.claim import ENDED_WITHIN
from provision.removal.losses import used_resources
from provision.state.record import ClusterRecord, lease_end
from provision.state.store import ClusterStore

ClusterState = Literal["creating", "ready", "failed", "destroying", "orphaned", "gone", "elsewhere"]


_UNKNOWN = (
    "gpuctl may not read AWS's notices to spot instances; allow ec2:DescribeSpotInstanceRequests"
)


@dataclass(frozen=True)
class NodeStatus:
    """An instance of a cluster; `state` is EC2's (`running`), or `missing`.

    `interrupted_at` is when AWS takes a spot instance back (ISO 8601), None without a notice.
    `reason` is EC2's code for the state, empty if it gives none. `type` is the instance type.
    """

    name: str
    instance_id: str
    state: str
    private_ip: str
    interrupted_at: str | None = None
    reason: str = ""
    type: str = ""
    zone: str = ""


@dataclass(frozen=True)
class ClusterStatus:
    """A cluster as it is now.

    `since` is ISO 8601. `state` is `orphaned` if this machine has no record of the cluster, `gone`
    if it has a record but no resource exists, and `elsewhere` if the cluster is in another AWS
    account. `others` names the resources other than nodes. `hourly_usd` is the price of what exists
    now; `spent_usd` is the cost of the cluster since it was created; both are None if a price is
    not known. `ends` is when the first machine powers off (ISO 8601), `idle_s` the seconds without
    work after which all do, which only a record has; None without such a limit. `uses` names what
    the cluster uses and did not create. `problems` are lines for people, each with a remedy.
    `as_of` is when AWS gave these facts; None if it was not asked. `users` are the people who use a
    cluster of hosts.
    """

    name: str
    id: str
    owner: str
    region: str
    state: ClusterState
    nodes: tuple[NodeStatus, ...]
    others: tuple[str, ...] = ()
    since: str | None = None
    hourly_usd: float | None = None
    spent_usd: float | None = None
    ends: str | None = None
    idle_s: int | None = None
    uses: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    as_of: datetime | None = None
    users: tuple[str, ...] = ()


def clusters(store: ClusterStore) -> tuple[ClusterStatus, ...]:
    """Return every cluster in the target's region or in this machine's records, by name.

    Clusters whose record names another region are read from that region. The result is right even
    if earlier commands were killed.
    """
    target = store.target
    known = {record.name: record for record in store.records()}
    elsewhere = _split_off_elsewhere(known, target)
    by_cluster: dict[tuple[str, str, str], list[Resource]] = {
        (record.region, record.name, record.id): [] for record in known.values()
    }
    for region in sorted({target.region, *(record.region for record in known.values())}):
        regional = replace(target, region=region)
        ec2 = client(regional, "ec2")
        others = [noun for noun in KINDS if noun != "instance"]
        for resource in (*find_instances(ec2, None), *find_all(regional, None, others)):
            place = (region, resource.cluster, resource.cluster_id)
            by_cluster.setdefault(place, []).append(resource)
    states = []
    taken_back = {region: _notices(target, region, by_cluster) for region, _, _ in by_cluster}
    for (region, name, cluster_id), resources in sorted(by_cluster.items(), key=_by_name):
        record = known.get(name)
        if record is not None and (record.region, record.id) != (region, cluster_id):
            record = None
        busy = record is not None and store.is_locked(name)
        if record is not None or any(exists(resource) for resource in resources):
            states.append(status_of(name, region, record, resources, busy, taken_back[region]))
    return tuple(sorted((*states, *elsewhere), key=lambda state: state.name))


def _by_name(item: tuple[tuple[str, str, str], object]) -> tuple[str, str, str]:
    region, name, cluster_id = item[0]
    return name, region, cluster_id


def _split_off_elsewhere(known: dict[str, ClusterRecord], target: Target) -> list[ClusterStatus]:
    """Remove the clusters of other accounts from `known`, and return a status for each.

    These credentials cannot read another account.
    """
    if not known:
        return []
    ours = caller(target).account
    others = [known.pop(r.name) for r in list(known.values()) if r.account != ours]
    return [
        ClusterStatus(
            name=record.name,
            id=record.id,
            owner=record.resolved.tags.get(OWNER_TAG, ""),
            region=record.region,
            state="elsewhere",
            nodes=(),
            since=record.created.isoformat(timespec="seconds"),
            problems=(
                f"it is in AWS account {record.account}, these credentials are of {ours};"
                f" {OTHER_ACCOUNT}",
            ),
        )
        for record in others
    ]


def _notices(
    target: Target, region: str, by_cluster: Mapping[tuple[str, str, str], Sequence[Resource]]
) -> dict[str, datetime] | None:
    """Return AWS's notices in the region; ask for them only if a cluster there has spot nodes."""
    if not any(
        _is_spot(resource)
        for place, some in by_cluster.items()
        if place[0] == region
        for resource in some
    ):
        return {}
    return notices(client(replace(target, region=region), "ec2"))


def status_of(
    name: str,
    region: str,
    record: ClusterRecord | None,
    resources: Sequence[Resource],
    busy: bool,
    taken_back: Mapping[str, datetime] | None,
) -> ClusterStatus:
    """Return one cluster's status; `busy` is true while a command changes it.

    `taken_back` maps instance ids to when AWS takes them back; None if gpuctl may not read that.
    """
    now = datetime.now(UTC)
    existing = [resource for resource in resources if exists(resource)]
    resources = resources if record else existing
    planned = record.resolved if record else None
    lifetime = planned.cluster.lifetime if planned else None
    prices = [price_of(resource, planned) for resource in existing]
    nodes = _nodes(name, record, resources, taken_back or {})
    state, problems = _judge(name, record, nodes, existing, busy)
    if taken_back is None and any(map(_is_spot, existing)):
        problems += (_UNKNOWN,)
    problems += _interruptions(nodes) + (() if busy else _claims(name, existing))
    problems += () if busy else _remains(existing)
    spent = spent_usd(resources, now, planned)
    problems += budget_warning(planned.cluster, spent) if planned and existing else ()
    begun = min((resource.since for resource in resources if resource.since), default=None)
    since = record.created if record else begun
    marked = next((r for r in resources if r.cluster_id), None)
    return ClusterStatus(
        name=name,
        id=record.id if record else marked.cluster_id if marked else "",
        owner=marked.owner if marked else "",
        region=region,
        state=state,
        nodes=nodes,
        others=tuple(f"{r.kind} {r.id}" for r in existing if not _belongs_to_node(name, r)),
        since=since.isoformat(timespec="seconds") if since else None,
        hourly_usd=None if None in prices else sum(price for price in prices if price),
        spent_usd=spent,
        ends=_end(record, existing),
        idle_s=lifetime.idle if lifetime else None,
        uses=tuple(used_resources(record)) if record else (),
        problems=problems,
        as_of=now,
    )


def _end(record: ClusterRecord | None, existing: Sequence[Resource]) -> str | None:
    """Return when the first machine powers off: by the record, without one by the tags."""
    machines = [resource for resource in existing if resource.kind == "instance"]
    if record is not None:
        first = lease_end(record, (machine.since for machine in machines if machine.since))
    else:
        first = min(filter(None, map(end_of, machines)), default=None)
    return first.isoformat(timespec="seconds") if first else None


def _judge(
    name: str,
    record: ClusterRecord | None,
    nodes: Sequence[NodeStatus],
    existing: Sequence[Resource],
    busy: bool,
) -> tuple[ClusterState, tuple[str, ...]]:
    down = command_text("gpuctl down {}", name)
    if record is None:
        return "orphaned", (_unrecorded(name, existing),)
    if busy:
        return record.status, ()
    if not existing:
        return "gone", (f"nothing of it exists; {down} forgets it",)
    if record.status != "ready":
        why = {
            "creating": "`gpuctl up` was killed; repeat it",
            "destroying": "`gpuctl down` did not finish; repeat it",
            "failed": f"{record.problem}; repeat `gpuctl up`",
        }[record.status]
        return "failed", (f"{why}; {down} removes it",)
    lost = tuple(
        f"{node.name} is {node.state}{_why(node)}; `gpuctl up` replaces it"
        for node in nodes
        if node.state not in ALIVE
    )
    return "ready", lost


def _unrecorded(name: str, existing: Sequence[Resource]) -> str:
    marked = next((resource for resource in existing if resource.cluster_id), None)
    if marked is None:
        return (
            f"this machine has no record of it; {command_text('gpuctl down {}', name)} removes it"
        )
    return (
        f"this machine has no record of it; it is {marked.owner}'s;"
        f" {command_text('gpuctl down {} --id {}', name, marked.cluster_id)} removes it"
    )


def _why(node: NodeStatus) -> str:
    return f": AWS took its spot instance back ({TAKEN_BACK})" if node.reason == TAKEN_BACK else ""


def _is_spot(resource: Resource) -> bool:
    return bool(resource.attributes.get("InstanceLifecycle") == "spot")


def _interruptions(nodes: Sequence[NodeStatus]) -> tuple[str, ...]:
    """Return a line for each node that AWS is about to take back."""
    return tuple(
        f"AWS takes {node.name}'s spot instance back at"
        f" {datetime.fromisoformat(node.interrupted_at):%H:%M:%S} UTC; save your work on it, then"
        " `gpuctl up` replaces it"
        for node in nodes
        if node.interrupted_at is not None
    )


def _remains(existing: Sequence[Resource]) -> tuple[str, ...]:
    """Return a line about what bills after the machines have ended, as at the end of a lease."""
    kinds = dict.fromkeys(resource.kind for resource in existing if leftover_price(resource) != 0)
    if not kinds or not kinds.keys().isdisjoint(("instance", "capacity reservation")):
        return ()
    usd = daily_usd(existing)
    cost = "an unknown amount" if usd is None else f"${usd:,.2f}"
    return (f"no machine of it exists, and what remains costs {cost} per day: {', '.join(kinds)}",)


def _claims(name: str, existing: Sequence[Resource]) -> tuple[str, ...]:
    """Return a line for each claim that a killed `up` left: AWS bills what it reserves."""
    return tuple(
        f"{resource.id} reserves {resource.attributes['TotalInstanceCount']} x"
        f" {resource.attributes['InstanceType']}, which bill until it ends by"
        f" itself{_until(resource)};"
        f" {command_text('gpuctl down {}', name)} cancels it at once"
        for resource in existing
        if resource.kind == "capacity reservation"
    )


def _until(claim: Resource) -> str:
    end = claim.attributes.get("EndDate")
    if not isinstance(end, datetime):
        return ""
    latest = (end + ENDED_WITHIN).astimezone(UTC)
    return f", at the latest at {latest:%H:%M} UTC"


def _nodes(
    name: str,
    record: ClusterRecord | None,
    resources: Sequence[Resource],
    taken_back: Mapping[str, datetime],
) -> tuple[NodeStatus, ...]:
    """Return the nodes in rank order: those that exist, and those that are missing."""
    instances: dict[str, Resource] = {}
    for resource in resources:
        node = _node_name(name, resource)
        wished = record is None or node in record.resolved.node_names
        if not _is_node(name, resource) or not (wished or exists(resource)):
            continue
        # EC2 lists a replaced instance for an hour after its end, together with the new one.
        if node not in instances or instances[node].state not in ALIVE:
            instances[node] = resource
    for node_name in record.resolved.node_names if record else ():
        if node_name not in instances and record and record.status == "ready":
            instances[node_name] = Resource("instance", "", name, node_name, "missing", {})
    return tuple(
        NodeStatus(
            name=node,
            instance_id=instance.id,
            state=instance.state,
            private_ip=instance.attributes.get("PrivateIpAddress", ""),
            interrupted_at=taken_back[instance.id].isoformat()
            if instance.id in taken_back and instance.state in ALIVE
            else None,
            reason=str((instance.attributes.get("StateReason") or {}).get("Code") or ""),
            type=str(instance.attributes.get("InstanceType", "")),
            zone=str(instance.attributes.get("Placement", {}).get("AvailabilityZone", "")),
        )
        for node, instance in sorted(instances.items(), key=lambda item: _rank(item[0]))
    )


def _is_node(cluster: str, resource: Resource) -> bool:
    return resource.kind == "instance" and _node_name(cluster, resource) != "bastion"


def _belongs_to_node(cluster: str, resource: Resource) -> bool:
    """Return whether it is a node, or an interface or volume that is removed with its instance."""
    attributes = resource.attributes
    attached = [attributes.get("Attachment", {}), *attributes.get("Attachments", ())]
    return _is_node(cluster, resource) or any("InstanceId" in volume for volume in attached)


def _node_name(cluster: str, resource: Resource) -> str:
    """Return `node0` from the Name tag `demo-node0`."""
    return resource.name.removeprefix(f"{cluster}-") or resource.id


def _rank(node: str) -> tuple[int, str]:
    digits = node.removeprefix("node")
    return (int(digits), "") if digits.isdigit() else (1 << 30, node)
