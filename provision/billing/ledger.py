"""What clusters have cost: a line of JSON per cluster that `gpuctl down` removed, kept for ever."""

import os
from datetime import datetime

from pydantic import AwareDatetime, ValidationError

from config.cluster.resolved import CLUSTER_TAG, ID_TAG, OWNER_TAG
from config.files import disk_errors
from config.models import Value
from config.target import Target
from provision.billing.cost import hourly_usd
from provision.state.record import ClusterRecord
from provision.state.store import ClusterStore

_OWN_TAGS = frozenset({CLUSTER_TAG, ID_TAG, OWNER_TAG})


class ClusterCost(Value):
    """The cost of a cluster from `began` to `ended`, or until now if that is None.

    `tags` are the user's. `node_usd` is a node's price per hour, `hourly_usd` the whole cluster's,
    as it was last planned; `source` is where the prices are from, with their date. `cost_usd` is
    what it cost by the ages of its resources, None while it exists. Prices are None if not known.
    """

    name: str
    id: str
    owner: str
    region: str
    instance_type: str
    nodes: int
    tags: dict[str, str]
    began: AwareDatetime
    ended: AwareDatetime | None = None
    node_usd: float | None = None
    hourly_usd: float | None = None
    source: str = ""
    cost_usd: float | None = None


def of_record(record: ClusterRecord) -> ClusterCost:
    """Return the cost of a cluster that exists, by its last plan."""
    resolved = record.resolved
    return ClusterCost(
        name=record.name,
        id=record.id,
        owner=resolved.tags.get(OWNER_TAG, ""),
        region=record.region,
        instance_type=resolved.instance_type.name,
        nodes=resolved.cluster.nodes,
        tags={tag: value for tag, value in resolved.tags.items() if tag not in _OWN_TAGS},
        began=record.created,
        node_usd=resolved.instance_type.price_usd_h,
        hourly_usd=hourly_usd(resolved),
        source=resolved.price_source,
    )


def keep(
    record: ClusterRecord | None, ended: datetime, cost_usd: float | None, target: Target
) -> None:
    """Append the cost of a cluster that was removed, unless it had no record on this machine.

    Raises StateError if the disk is full.
    """
    if record is None:
        return
    cost = of_record(record).model_copy(update={"ended": ended, "cost_usd": cost_usd})
    with disk_errors():
        target.state.mkdir(mode=0o700, parents=True, exist_ok=True)
        # One write to a file opened for appending: lines of several processes do not mix.
        path = target.state / "costs.jsonl"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        try:
            os.write(descriptor, f"{cost.model_dump_json()}\n".encode())
        finally:
            os.close(descriptor)


def cluster_costs(target: Target) -> tuple[tuple[ClusterCost, ...], int]:
    """Return the costs of all clusters of this machine, and the number of unreadable lines.

    They are in the order of their begin; those that exist are among them.
    """
    try:
        lines = (target.state / "costs.jsonl").read_text().splitlines()
    except FileNotFoundError:
        lines = []
    entries = [_parse(line) for line in lines]
    known = [entry for entry in entries if entry is not None] + [
        of_record(record) for record in ClusterStore(target).records()
    ]
    return tuple(sorted(known, key=lambda cost: cost.began)), entries.count(None)


def _parse(line: str) -> ClusterCost | None:
    """Return the line's cost; None for a line that a crash has torn."""
    try:
        return ClusterCost.model_validate_json(line)
    except ValidationError:
        return None
