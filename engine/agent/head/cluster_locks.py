"""Locks on the head that a client holds while it changes the cluster, until it disconnects.

Clients of several machines may follow one run. `healing` lets one of them make lost nodes again.
`removal` lets one of them remove the cluster, if no other run is on it, and no run begins then.
`down` is for a person who removes it with its runs. Nobody heals while a client removes.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path

from engine.agent.head.queue import Queue
from engine.agent.journal.locks import is_held, locked, take
from engine.contract.names import BUSY, HEALING, HEALS, HELD, REMOVAL, REMOVES, TAKEN


def hold(folder: Path, what: str) -> int:
    """Hold the lock until stdin ends; return 0.

    First print a line: `held`; `taken`, if another client holds the lock; `heals` or `removes`, if
    another client does that meanwhile; or `busy`, if other runs keep the cluster from removal.
    Unless it is `held`, return at once.
    """
    # Clients decide one after the other, and a refused one holds nothing meanwhile.
    with locked(folder.parent, "holding.lock"):
        answer = _take(folder, what)
    sys.stdout.write(f"{answer}\n")
    sys.stdout.flush()
    if answer == HELD:
        while os.read(0, 4096):
            pass  # the end of input is what counts
    return 0


def _take(folder: Path, what: str) -> str:
    """Take the lock, unless another client prevents it; return the answer.

    For a removal that is not `down`'s, close the cluster for runs.
    """
    name, other = (HEALING, REMOVAL) if what == HEALING else (REMOVAL, HEALING)
    if _is_held(folder, name):
        return TAKEN
    if _is_held(folder, other):
        return HEALS if other == HEALING else REMOVES
    if what == REMOVAL and not Queue(folder.parent).close_cluster(folder.name):
        return BUSY
    take(_path(folder, name))
    return HELD


def _is_held(folder: Path, name: str) -> bool:
    path = _path(folder, name)
    return path.exists() and is_held(path)


def _path(folder: Path, name: str) -> Path:
    return folder.parent / f"{name}.lock"
