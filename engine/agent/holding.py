"""Locks on the head that a client holds while it changes the cluster, until it disconnects.

Clients of several machines may follow one run. `healing` lets one of them make lost nodes again.
`removal` lets one of them remove the cluster, if no other run is on it, and no run begins then.
`down` is for a person who removes it with its runs. Nobody heals while a client removes.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from engine.agent.budget import protect_folder
from engine.agent.queue import Queue

HELD, TAKEN, BUSY = "held", "taken", "busy"
HEALS, REMOVES = "heals", "removes"
REMOVAL, HEALING, DOWN = "removal", "healing", "down"


def hold(folder: Path, what: str) -> int:
    """Hold the lock until stdin ends; return 0.

    First print a line: `held`; `taken`, if another client holds the lock; `heals` or `removes`, if
    another client does that meanwhile; or `busy`, if other runs keep the cluster from removal.
    Unless it is `held`, return at once.
    """
    answer = _heal(folder) if what == HEALING else _remove(folder, what)
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
    if answer == HELD:
        while os.read(0, 4096):
            pass  # the end of input is what counts
    return 0


def _heal(folder: Path) -> str:
    """Take the lock of healing, and a share of that of removal."""
    if not _take(folder, HEALING, fcntl.LOCK_EX):
        return TAKEN
    return HELD if _take(folder, REMOVAL, fcntl.LOCK_SH) else REMOVES


def _remove(folder: Path, what: str) -> str:
    """Take the lock of removal; unless it is for `down`, close the cluster for runs."""
    if not _take(folder, REMOVAL, fcntl.LOCK_EX):
        return HEALS if _take(folder, REMOVAL, fcntl.LOCK_SH) else TAKEN
    if what == REMOVAL:
        protect_folder(folder)  # its line in the queue counts as long as this process lives
        if not Queue(folder.parent).close_cluster(folder.name):
            return BUSY
    return HELD


def _take(folder: Path, name: str, how: int) -> bool:
    """Take the lock until this process ends; return False if others prevent it."""
    lock = os.open(folder.parent / f"{name}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    try:
        fcntl.flock(lock, how | fcntl.LOCK_NB)
    except BlockingIOError:
        return False
    return True
