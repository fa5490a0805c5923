"""The cost of a time, by cluster, run, tag, user or month: from what clusters and runs cost."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from datetime import UTC, datetime, timedelta
from typing import Literal

from provision.billing.ledger import ClusterCost

By = Literal["cluster", "run", "tag", "user", "month"]

NO_RUN = "(no run)"
"""What a cluster cost while a node had no run: set-up, idling, access, and removal."""

NO_TAG, NO_OWNER = "(no tag)", "(no owner)"


@dataclass(frozen=True)
class RunTime:
    """A run and the nodes that it had; `ended` is None while it goes on."""

    run_id: str
    cluster: str
    nodes: int
    started: datetime
    ended: datetime | None


@dataclass(frozen=True)
class Spending:
    """The cost of a cluster, a run, a tag, a user or a month within a time.

    `cost_usd` is None if a price is not known. `hours` are those of its nodes together. `sources`
    are where the prices are from, with their dates.
    """

    name: str
    cluster: str
    hours: float
    cost_usd: float | None
    sources: tuple[str, ...]


def spending(
    clusters: Sequence[ClusterCost],
    runs: Sequence[RunTime],
    since: datetime,
    now: datetime,
    by: By,
) -> tuple[Spending, ...]:
    """Return what was spent from `since` until `now`: most first, months in their order.

    By tag, a cluster with several tags counts for each. By run, what no run used is a row for each
    cluster. The user is a cluster's owner. Months are those of UTC: `2026-11`.
    """
    rows: list[Spending] = []
    for cluster in clusters:
        if (whole := _of_cluster(cluster, since, now)) is None:
            continue
        if by == "cluster":
            rows.append(whole)
        elif by == "tag":
            rows += _by_tag(cluster, whole)
        elif by == "user":
            rows.append(replace(whole, name=cluster.owner or NO_OWNER, cluster=""))
        elif by == "month":
            rows += _by_month(cluster, since, now)
        else:
            rows += _by_run(cluster, whole, runs, since, now)
    if by in ("tag", "user", "month"):
        rows = _sums(rows)
    if by == "month":
        return tuple(sorted(rows, key=lambda row: row.name))
    return tuple(sorted(rows, key=lambda row: (-(row.cost_usd or 0.0), row.name, row.cluster)))


def total_usd(rows: Iterable[Spending]) -> float | None:
    """Return the sum; None if one is not known."""
    costs = [row.cost_usd for row in rows]
    return None if None in costs else sum(cost for cost in costs if cost is not None)


def _overlap_h(begin: datetime, end: datetime | None, since: datetime, now: datetime) -> float:
    """Return the hours of a time that are within `since` and `now`."""
    return max(0.0, (min(end or now, now) - max(begin, since)).total_seconds() / 3600)


def _of_cluster(cluster: ClusterCost, since: datetime, now: datetime) -> Spending | None:
    """Return the cost of the cluster within the time, None if it did not exist then."""
    hours = _overlap_h(cluster.began, cluster.ended, since, now)
    if not hours:
        return None
    cost = None if cluster.hourly_usd is None else cluster.hourly_usd * hours
    if cluster.cost_usd is not None and cluster.ended is not None:
        life = (cluster.ended - cluster.began).total_seconds() / 3600
        cost = cluster.cost_usd * hours / life
    name = f"{cluster.name} ({cluster.id})" if cluster.id else cluster.name
    sources = (cluster.source,) if cluster.source else ()
    return Spending(name, cluster.name, hours * cluster.nodes, cost, sources)


def _by_tag(cluster: ClusterCost, whole: Spending) -> list[Spending]:
    names = [f"{tag}={value}" for tag, value in sorted(cluster.tags.items())] or [NO_TAG]
    return [Spending(name, "", whole.hours, whole.cost_usd, whole.sources) for name in names]


def _by_month(cluster: ClusterCost, since: datetime, now: datetime) -> list[Spending]:
    """Return a row for each month of UTC in which the cluster existed within the time."""
    rows = []
    begin = max(cluster.began, since).astimezone(UTC)
    while begin < min(cluster.ended or now, now):
        first = begin.replace(day=1, hour=0, minute=0, second=0, microsecond=0)
        end = (first + timedelta(days=32)).replace(day=1)
        part = _of_cluster(cluster, begin, min(end, now))
        if part is not None:
            rows.append(replace(part, name=f"{begin:%Y-%m}", cluster=""))
        begin = end
    return rows


def _sums(parts: Sequence[Spending]) -> list[Spending]:
    """Return one row for each name."""
    rows: dict[str, list[Spending]] = {}
    for row in parts:
        rows.setdefault(row.name, []).append(row)
    return [
        Spending(
            name,
            "",
            sum(part.hours for part in same),
            total_usd(same),
            tuple(dict.fromkeys(source for part in same for source in part.sources)),
        )
        for name, same in rows.items()
    ]


def _by_run(
    cluster: ClusterCost,
    whole: Spending,
    runs: Sequence[RunTime],
    since: datetime,
    now: datetime,
) -> list[Spending]:
    """Return a row for each run on the cluster, by its nodes' price, and one for the rest."""
    rows: list[Spending] = []
    for run in runs:
        is_here = run.cluster == cluster.name and cluster.began <= run.started
        if not is_here or run.started > (cluster.ended or now):
            continue
        # A run whose end no client has seen ended with its cluster at the latest.
        end = min(run.ended or now, cluster.ended or now)
        hours = _overlap_h(run.started, end, since, now) * run.nodes
        cost = None if cluster.node_usd is None else cluster.node_usd * hours
        if hours:
            rows.append(Spending(run.run_id, cluster.name, hours, cost, whole.sources))
    used, cost = sum(row.hours for row in rows), total_usd(rows)
    rest = None if whole.cost_usd is None or cost is None else max(0.0, whole.cost_usd - cost)
    idle = max(0.0, whole.hours - used)
    return [*rows, Spending(NO_RUN, cluster.name, idle, rest, whole.sources)]
