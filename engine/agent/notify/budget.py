"""The cost of the cluster: its price per hour for its whole age, as `gpuctl extend` computes it."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable

from engine.contract.head_events import BudgetNearing
from engine.contract.plan import BudgetPlan

_LOOK_S = 60.0


async def watch_budget(report: Callable[[BudgetNearing], None], budget: BudgetPlan) -> None:
    """Report once that the cluster has cost `warn_usd` or more, then return.

    The clock is read every minute, because somebody may set it.
    """
    warn_at = _reached_at(budget, budget.warn_usd)
    while True:
        left = warn_at - time.time()
        if left <= 0:
            break
        await asyncio.sleep(min(left, _LOOK_S))
    spent = budget.hourly_usd * (time.time() - budget.since) / 3600
    most = budget.max_usd
    report(BudgetNearing(max(spent, budget.warn_usd), most, _reached_at(budget, most)))


def _reached_at(budget: BudgetPlan, usd: float) -> float:
    """Return when the cluster has cost so many dollars, in seconds since the epoch."""
    return budget.since + 3600 * usd / budget.hourly_usd
