"""Messages of the kernel about processes: kills for memory, and crashes (config/xid.py has GPUs).

Formats: mm/oom_kill.c and mm/memcontrol.c (`oom-kill:…`, `Killed process …`), arch/x86/mm/fault.c
and arch/x86/kernel/traps.c (`segfault at`, `traps:`) of Linux 5.10 to 6.18, seen on 6.18 on
2026-11-23.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from typing import NamedTuple

_CONSTRAINT = re.compile(r"oom-kill:constraint=(\w+),.*task_memcg=([^,]*),task=.*,pid=(\d+),uid=")
_KILLED = re.compile(
    r"(?:Out of memory|Memory cgroup out of memory)[^:]*: Killed process (\d+) \((.*)\)"
    r" total-vm:\d+kB, anon-rss:(\d+)kB, file-rss:(\d+)kB(?:, shmem-rss:(\d+)kB)?"
)
_CRASHED = re.compile(
    r"(?:traps: )?(.+)\[(\d+)\]:? (segfault|general protection fault|trap [\w ]+?)(?: at \w+)?"
    r" ip[: ]\w+ sp[: ]\w+ error[: ]\w+(?: in ([^\[]+)\[.*| likely .*)?"
)


class Kill(NamedTuple):
    """A process that the kernel killed for memory: its name, pid, and resident size in bytes.

    `is_limit` means that the limit of its control group `group` was reached, not the machine's.
    """

    name: str
    pid: int
    size: int
    group: str
    is_limit: bool


class Crash(NamedTuple):
    """A process that the processor stopped: its name, pid, error, and the file with the code."""

    name: str
    pid: int
    error: str
    where: str


def kills(lines: Iterable[str]) -> list[Kill]:
    """Return the processes that the kernel killed for memory, in order."""
    killed_groups = []
    constraints: dict[int, tuple[str, str]] = {}
    for line in lines:
        constraint = _CONSTRAINT.search(line)
        if constraint:
            constraints[int(constraint[3])] = (constraint[1], constraint[2])
        killed = _KILLED.search(line)
        if killed:
            pid = int(killed[1])
            why, group = constraints.get(pid, ("", ""))
            size = 1024 * sum(int(part or 0) for part in killed.group(3, 4, 5))
            killed_groups.append(Kill(killed[2], pid, size, group, why == "CONSTRAINT_MEMCG"))
    return killed_groups


def crashes(lines: Iterable[str]) -> list[Crash]:
    """Return the processes that crashed, in order."""
    matches = (_CRASHED.fullmatch(line) for line in lines)
    return [
        Crash(match[1], int(match[2]), match[3].removeprefix("trap "), (match[4] or "").strip())
        for match in matches
        if match
    ]
