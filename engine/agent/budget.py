"""What is kept of runs that are over: the newest, within a size and an age.

Nodes remove an earlier run's folder by this when a new run begins, the client its copies of
journals. A run that lives, or whose end nobody has read, is never removed.
"""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import time
from dataclasses import dataclass
from pathlib import Path

from engine.agent.control import JOURNAL, READ

AGE_S = 30 * 24 * 3600
NODE_SHARE = 10  # a node keeps runs on this part of its disk: a tenth


@dataclass(frozen=True)
class Kept:
    """A run's folder: bytes that it takes, when it ended (time of day), whether it may go."""

    folder: Path
    size: int
    ended: float
    may_go: bool


def beyond(kept: list[Kept], size: int, age_s: float, now: float) -> list[Kept]:
    """Return the runs to remove, oldest first: what is too old, and what is too much.

    What may not go counts, and stays.
    """
    total = sum(run.size for run in kept)
    removed = []
    for run in sorted(kept, key=lambda run: run.ended):
        if run.may_go and (total > size or now - run.ended > age_s):
            removed.append(run)
            total -= run.size
    return removed


def size_of(folder: Path) -> int:
    """Return the bytes that a folder takes on its disk."""
    size = 0
    for path in folder.rglob("*"):
        with contextlib.suppress(FileNotFoundError):  # removed meanwhile
            size += path.lstat().st_blocks * 512
    return size


def hold(folder: Path) -> None:
    """Hold the folder until this process ends, so that no other run removes it."""
    fcntl.flock(os.open(folder, os.O_RDONLY), fcntl.LOCK_SH)


def make_room(own: Path) -> None:
    """Remove earlier runs from this node's disk where they are too old or too much.

    `own` is the folder of the run that begins. What cannot be removed stays: no run fails of it.
    """
    with contextlib.suppress(OSError):  # removed by another worker at the same time
        share = shutil.disk_usage(own.parent).total // NODE_SHARE
        kept = [_kept(path) for path in own.parent.iterdir() if path.is_dir() and path != own]
        for run in beyond(kept, share, AGE_S, time.time()):
            shutil.rmtree(run.folder, ignore_errors=True)  # the next run tries again


def _kept(folder: Path) -> Kept:
    changes = [path.lstat().st_mtime for path in (folder, *folder.iterdir())]
    is_read = (folder / READ).exists() or not (folder / JOURNAL).exists()
    return Kept(folder, size_of(folder), max(changes), is_read and not _is_held(folder))


def _is_held(folder: Path) -> bool:
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(descriptor)
    return False
