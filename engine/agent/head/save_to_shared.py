"""Save what a run leaves on its nodes in the cluster's shared storage, before they power off.

It is for a run with `on_stop: destroy` that no client follows at its end. The folder in the shared
storage has what a client would have fetched, under the same names: journal, metrics, evidence, and
`outputs/rank-N`; and each node's `rank-N.log`, which people can read. The journal is copied last.

Copying has a time limit, because the nodes cost money meanwhile. A file that has its name is whole.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import shutil
import sys
import tempfile
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING

from engine.agent.node.outputs import matches
from engine.contract.names import NOT_SAVED
from engine.contract.node_plan import NodePlan
from engine.contract.plan import LaunchPlan

if TYPE_CHECKING:
    from asyncio.subprocess import Process

    from engine.agent.link.launcher import Launcher

_KILL_S = 5.0
_OF_HEAD = (
    ("metrics.jsonl", "metrics-*", "evidence", NOT_SAVED),
    ("journal.jsonl", "journal-*"),
)
"""Patterns of the head's files, in the order in which they are copied."""

Copy = tuple[str, list[str], str]
"""A folder in the run's folder, patterns of files in it, and the folder to copy them to."""


async def save_run(plan: LaunchPlan, folder: Path, launcher: Launcher, most_s: float) -> None:
    """Copy what the run leaves on its nodes to `plan.saved`; return after 2 * `most_s` at most.

    All nodes have `most_s` seconds, and then the head again. `folder` is the run's on the head.
    """
    saved, outputs = plan.saved, list(plan.outputs)

    async def of_node(node: NodePlan) -> str:
        rank = node.rank
        logs: Copy = ("", [f"rank-{rank}.log", f"rank-{rank}-*"], saved)
        copies: list[Copy] = [logs, ("work", outputs, f"{saved}/outputs/rank-{rank}")]
        reason = await _save_at(launcher, rank, copies, most_s)
        return f"{node.name}: {reason}\n" if reason else ""

    failures = await asyncio.gather(*map(of_node, plan.nodes))
    with contextlib.suppress(OSError):  # the disk is full
        (folder / NOT_SAVED).unlink(missing_ok=True)
        if any(failures):
            (folder / NOT_SAVED).write_text("".join(failures), encoding="utf-8")
    of_head: list[Copy] = [("", list(patterns), saved) for patterns in _OF_HEAD]
    await _save_at(launcher, None, of_head, most_s)


async def _save_at(launcher: Launcher, rank: int | None, copies: list[Copy], most_s: float) -> str:
    """Copy at the node with this rank, or at the head; return why it failed, empty if not."""
    try:
        process = await launcher.save(rank)
    except OSError as error:
        return str(error)
    try:
        return await asyncio.wait_for(_converse(process, copies), most_s)
    except asyncio.TimeoutError:  # noqa: UP041  Python before 3.11
        return f"not done within {most_s:g} s"
    finally:  # also if this supervisor ends meanwhile
        if process.returncode is None:
            with contextlib.suppress(ProcessLookupError):  # it has ended
                process.kill()
            with contextlib.suppress(asyncio.TimeoutError):  # a file system that hangs may hold it
                await asyncio.wait_for(process.wait(), _KILL_S)


async def _converse(process: Process, copies: list[Copy]) -> str:
    _, errors = await process.communicate(json.dumps(copies).encode() + b"\n")
    if process.returncode == 0:
        return ""
    lines = errors.decode("utf-8", "replace").strip().splitlines()
    return lines[-1] if lines else f"it ended with {process.returncode}"


def save(folder: Path) -> int:
    """Copy files of the run's folder as stdin orders, a JSON list of Copy.

    Return 0, or 1 with the first failure on stderr; the other files are copied all the same.
    """
    failures = []
    for source, patterns, to in json.loads(sys.stdin.buffer.readline()):
        failures += _copy_all(folder / source, patterns, Path(to))
    if failures:
        more = f" (and {len(failures) - 1} more)" if len(failures) > 1 else ""
        sys.stderr.write(f"{failures[0]}{more}\n")
    return 1 if failures else 0


def _copy_all(source: Path, patterns: Iterable[str], to: Path) -> list[str]:
    """Copy what the patterns match in `source`; return a line for each file that failed."""
    failures, folders = [], []
    for path, kind, mode, target, _ in matches(source, list(patterns)):
        place = to / path
        try:
            place.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            if kind == "folder":
                place.mkdir(exist_ok=True)
                folders.append((place, mode))
            elif kind == "link":
                place.unlink(missing_ok=True)
                place.symlink_to(target)
            else:
                _copy_file(source / path, place, mode & 0o777)
        except OSError as error:
            failures.append(f"{path}: {error.strerror}")
    for place, mode in reversed(folders):  # a folder without `w` gets its mode when it is full
        place.chmod(mode)
    return failures


def _copy_file(source: Path, place: Path, mode: int) -> None:
    """Copy the file; it has its name once it is whole."""
    descriptor, part = tempfile.mkstemp(prefix=".part-", dir=place.parent)
    os.close(descriptor)
    try:
        shutil.copyfile(source, part)
        Path(part).chmod(mode)
        Path(part).replace(place)
    except OSError:
        Path(part).unlink()
        raise
