"""What clusters and runs have cost, by this machine's records."""

from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path

from config.quantities import counted
from engine.record.history import History
from operations.chosen_target import ChosenTarget
from operations.watcher import LoggingWatcher, Watcher
from provision.billing.ledger import cluster_costs
from provision.billing.report import By, RunTime, Spending, spending, total_usd

__all__ = ["By"]


@dataclass(frozen=True)
class Costs:
    """The money spent from `since` until `until`: rows of clusters, runs, tags, users or months.

    With several tags a cluster is in several rows; `total_usd` has it once. It is None if a price
    is not known. `own` are the clusters of machines that people have, which have no price.
    """

    since: datetime
    until: datetime
    by: By
    total_usd: float | None
    rows: tuple[Spending, ...]
    own: tuple[str, ...] = ()


def find(
    chosen: ChosenTarget,
    since: datetime,
    *,
    by: By = "cluster",
    watcher: Watcher = LoggingWatcher(),
) -> Costs:
    """Return what this machine's clusters have cost at list prices; warn of unreadable lines."""
    now = datetime.now(UTC)
    target = chosen.remembered()
    clusters, torn = cluster_costs(target)
    rows = spending(clusters, _runs(target.runs), since, now, by)
    if torn:
        verb = "it does" if torn == 1 else "they do"
        path = target.state / "costs.jsonl"
        watcher.warn(f"gpuctl cannot read {counted(torn, 'line')} of {path}: {verb} not count")
    total = total_usd(spending(clusters, (), since, now, "cluster"))
    return Costs(since, now, by, total, rows, chosen.hosts_store().hosts_names())


def _runs(runs: Path) -> list[RunTime]:
    with History(runs) as history:
        return [
            RunTime(run.run_id, run.cluster, run.nodes, run.started, run.ended)
            for run in history.runs()
            if run.status != "queued"
        ]
