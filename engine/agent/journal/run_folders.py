"""The budget for files of earlier runs: a size and an age.

When a new run begins, nodes remove folders of earlier runs that are over it, and the client removes
copies of journals. Active runs, and runs with an end that no client has read, are never removed.

A node does not count ages by the time of day, which somebody may set. Each folder has a mark with
the time of its last use since the machine's start. What was last used before that start is as old
as the start.
"""

from __future__ import annotations

import contextlib
import os
import shutil
import time
from pathlib import Path
from typing import NamedTuple

from engine.agent.journal.clock import steady
from engine.agent.journal.journal_file import JOURNAL
from engine.agent.journal.locks import is_held, locked
from engine.agent.journal.run_secrets_file import boot_id, may_come_back

READ = "read"
"""A file in a run's folder; it exists once a client has read the journal to its end."""

AGE_S = 30 * 24 * 3600
TREE = "tree-"
"""The beginning of the names of trees of code, which lie next to the runs (node/code_store.py)."""
FRESH_S = 600
"""A tree that was used in the last seconds is not removed: a run may be about to copy it."""
REMOVED = ".removed-"
"""The beginning of the name of a folder that is being removed."""
USED = "used-"
"""The beginning of the name of the mark in a folder. The rest is the id of a boot, and the file's
time is in seconds since that boot."""
NODE_SHARE = 10  # runs may take a tenth of a node's disk


class StoredRun(NamedTuple):  # dataclasses would cost every `receive` a sixth more
    """A run's folder: its size in bytes, the time of its end, and whether it may be removed.

    On a node that time is in seconds since the machine's start.
    """

    folder: Path
    size: int
    ended: float
    is_removable: bool


def runs_to_remove(kept: list[StoredRun], size: int, age_s: float, now: float) -> list[StoredRun]:
    """Return the runs to remove, oldest first: those over the age, then those over the size.

    Runs that must not be removed count for the size, but are never returned.
    """
    total = sum(run.size for run in kept)
    removed = []
    for run in sorted(kept, key=lambda run: run.ended):
        if run.is_removable and (total > size or now - run.ended > age_s):
            removed.append(run)
            total -= run.size
    return removed


def folder_size(folder: Path) -> int:
    """Return the bytes that the folder takes on its disk."""
    size = 0
    for parent, folders, files in os.walk(folder):
        for name in (*folders, *files):
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                # pathlib would take three times as long for the code of many runs
                size += os.lstat(f"{parent}/{name}").st_blocks * 512
    return size


def mark_used(folder: Path) -> None:
    """Mark the folder as used now."""
    with contextlib.suppress(OSError):  # the disk has no inode left
        now, mark = steady(), _mark(folder)
        mark.touch()
        os.utime(mark, (now, now))


def used_in_this_boot(folder: Path) -> float | None:
    """Return when the folder was used last, in seconds since this machine's start.

    Return None if it was not used since then.
    """
    with contextlib.suppress(FileNotFoundError):  # None says that
        return _mark(folder).stat().st_mtime
    return None


def _mark(folder: Path) -> Path:
    return folder / f"{USED}{boot_id()}"


def remove_old_runs(own: Path, disk_size: int | None = None) -> None:
    """Remove earlier runs that are over the budget from this node's disk.

    `own` is the folder of the run that begins, `disk_size` its disk's bytes, which are looked up by
    default. Errors are ignored: they must not fail a run.
    """
    with contextlib.suppress(OSError):  # removed by another worker at the same time
        if disk_size is None:
            disk_size = shutil.disk_usage(own.parent).total
        folders = [path for path in own.parent.iterdir() if path.is_dir() and path != own]
        # The time of day only orders those of which the mark says nothing.
        kept = [_kept(path) for path in sorted(folders, key=lambda path: path.lstat().st_mtime)]
        for run in runs_to_remove(kept, disk_size // NODE_SHARE, AGE_S, steady()):
            _remove(run.folder)


def _kept(folder: Path) -> StoredRun:
    return StoredRun(folder, folder_size(folder), _last_use(folder), _is_removable(folder))


def _is_removable(folder: Path) -> bool:
    if folder.name.startswith(TREE) and steady() - _last_use(folder) < FRESH_S:
        return False
    is_read = (folder / READ).exists() or not (folder / JOURNAL).exists()
    return is_read and not is_held(folder) and not may_come_back(folder)


def _remove(folder: Path) -> None:
    """Remove the folder, unless it has come into use; what stays is removed with a later run."""
    removed = folder.with_name(f"{REMOVED}{folder.name}")
    if not folder.name.startswith(REMOVED):
        with locked(folder.parent), contextlib.suppress(FileNotFoundError):  # another was first
            if not _is_removable(folder):
                return
            folder.rename(removed)
            folder = removed
    shutil.rmtree(folder, ignore_errors=True)  # the next start tries again


def _last_use(folder: Path) -> float:
    """Return when the folder was used last, in seconds since this machine's start; 0 if before."""
    try:
        return _mark(folder).stat().st_mtime
    except FileNotFoundError:
        if any(folder.glob(f"{USED}*")):  # of an earlier boot
            return 0.0
    # Not marked yet.
    age = max(0.0, time.time() - folder.lstat().st_mtime)
    return max(0.0, steady() - age)
