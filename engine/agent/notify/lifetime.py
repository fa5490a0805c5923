"""The end of the cluster's lifetime, as the timer on this machine has it, and the cluster's cost.

The timer is part of a machine's set-up (provision/setup/cloud_init.py) and powers it off. The cost
is the price per hour for the cluster's whole age, as `gpuctl extend` computes it.
"""

from __future__ import annotations

import asyncio
import calendar
import re
import time
from collections.abc import Callable
from pathlib import Path

from engine.agent.journal.clock import steady
from engine.contract.head_events import BudgetNearing
from engine.contract.plan import BudgetPlan

TIMER = Path("/etc/systemd/system/gpuctl-lifetime.timer")
NOTICE_S = 900.0
"""Seconds before the end of the nodes at which it is reported."""
_AT = re.compile(r"^OnCalendar=(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d) UTC$", re.MULTILINE)


def lifetime_end(timer: Path = TIMER) -> float | None:
    """Return when this machine powers off, in seconds since the epoch; None without a lifetime."""
    try:
        match = _AT.search(timer.read_text(encoding="utf-8"))
    except OSError:  # no timer
        return None
    if match is None:
        return None
    return float(calendar.timegm(time.strptime(match[1], "%Y-%m-%d %H:%M:%S")))


async def watch_end(
    end_of: Callable[[], float | None],
    report: Callable[[float], object],
    reported: float | None,
    look_s: float = 60.0,
    notice_s: float = NOTICE_S,
) -> None:
    """Report the end when it is less than `notice_s` away, and each later change.

    `reported` is the end that was reported before. `end_of` is called every `look_s` seconds. It
    never returns. The timer of the lifetime has two clocks (docs/do/lease.md): if the clock is set
    back, that changes nothing.
    """
    seen: float | None = None
    while True:
        end = end_of()
        pause = look_s
        if end is not None:
            left = end - time.time()
            if end != seen:
                seen, until = end, steady() + left
            left = min(left, until - steady())
            if 0 < left <= notice_s and end != reported:
                report(end)
                reported = end
            elif left > notice_s:
                pause = min(look_s, left - notice_s)
        await asyncio.sleep(pause)


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
