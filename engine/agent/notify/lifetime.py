"""The end of the cluster's lifetime, as the timer on this machine has it.

The timer is part of a machine's set-up (provision/setup/cloud_init.py) and powers it off.
"""

from __future__ import annotations

import asyncio
import calendar
import re
import time
from collections.abc import Callable
from pathlib import Path

from engine.agent.journal.clock import steady

TIMER = Path("/etc/systemd/system/gpuctl-lifetime.timer")
NOTICE_S = 900.0
"""Seconds before the end of the lifetime at which it is reported."""
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


async def watch_lifetime(
    report: Callable[[float], None],
    reported: float | None,
    timer: Path = TIMER,
    look_s: float = 60.0,
    notice_s: float = NOTICE_S,
) -> None:
    """Report the end of the lifetime when it is less than `notice_s` away, and each later change.

    `reported` is the end that was reported before. The timer is read every `look_s` seconds. It
    never returns. The timer has two clocks (docs/do/lease.md): if the clock is set back, that
    changes nothing.
    """
    seen: float | None = None
    while True:
        end = lifetime_end(timer)
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
