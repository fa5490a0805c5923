"""How far a cluster that exists has used `budget.max_total`.

The lease ends a cluster before it has cost more: `plan`, `up` and `extend` refuse a later end.
"""

from datetime import UTC, datetime

from config.cluster.cluster_file import Cluster
from config.command_text import command_text
from config.errors import InputError
from config.quantities import money

WARN_SHARE = 0.8
"""The share of `budget.max_total` from which on gpuctl warns."""


def budget_warning(cluster: Cluster, spent_usd: float | None) -> tuple[str, ...]:
    """Return a line if the cluster has cost `WARN_SHARE` of its budget or more, else none."""
    most = cluster.budget.max_total if cluster.budget else None
    if most is None or spent_usd is None or spent_usd < WARN_SHARE * most:
        return ()
    share = int(100 * spent_usd / most + 1e-6)  # 79.99999999 is 80 %
    end = command_text("gpuctl down {}", cluster.name)
    return (
        f"it has cost about {money(spent_usd)}, {share} % of budget.max_total ({money(most)});"
        f" {end} ends the cost",
    )


def check_until(
    cluster: Cluster, hourly: float | None, created: datetime, seconds: int, hint: str
) -> None:
    """Raise InputError if the cluster costs more than its budget until an end in `seconds`.

    It has cost `hourly` dollars an hour since it was created; None is an unknown price.
    """
    most = cluster.budget.max_total if cluster.budget else None
    if most is None or hourly is None:
        return
    age_s = (datetime.now(UTC) - created).total_seconds()
    total = hourly * (age_s + seconds) / 3600
    if total > most:
        raise InputError(
            f"budget.max_total: cluster {cluster.name} would cost ${total:,.2f} until its new end,"
            f" at most ${most:,.2f} is allowed",
            hint,
        )
