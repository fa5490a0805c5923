"""How far a cluster that exists has used `budget.max_total`.

Nothing ends a cluster at its budget: `plan`, `up` and `extend` refuse what would cost more.
"""

from config.cluster.cluster_file import Cluster
from config.command_text import command_text
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
