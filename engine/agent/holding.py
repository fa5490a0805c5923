"""Locks on the head that a client holds while it changes the cluster, until it disconnects.

Clients of several machines may follow one run. `healing` lets one of them make lost nodes again.
`removal` lets one of them remove the cluster, if no other run is on it, and no run begins then.
"""

from __future__ import annotations

import fcntl
import os
import sys
from pathlib import Path

from engine.agent.budget import protect_folder
from engine.agent.queue import Queue

HELD, TAKEN, BUSY = "held", "taken", "busy"
REMOVAL, HEALING = "removal", "healing"


def hold(folder: Path, what: str) -> int:
    """Hold the lock until stdin ends; return 0.

    First print a line: `held`; `taken`, if another client holds the lock; or `busy`, if other runs
    keep the cluster from removal. Unless it is `held`, return at once.
    """
    lock = os.open(folder.parent / f"{what}.lock", os.O_RDWR | os.O_CREAT, 0o600)
    answer = _take(lock, folder, what)
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
    if answer == HELD:
        while os.read(0, 4096):
            pass  # the end of input is what counts
    return 0


def _take(lock: int, folder: Path, what: str) -> str:
    try:
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return TAKEN
    if what == REMOVAL:
        protect_folder(folder)  # its line in the queue counts as long as this process lives
        if not Queue(folder.parent).close_cluster(folder.name):
            return BUSY
    return HELD
