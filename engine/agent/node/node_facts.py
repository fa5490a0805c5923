"""Facts about a node at the end of a job, each from one source.

judge/failures.py lists their kinds. A source that cannot be read adds none.
"""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path

from config.xid import gpu_errors
from engine.agent.judge import kernel_messages
from engine.agent.node.job_files import read_job_file
from engine.contract.worker_events import NodeFact

_GPU_ERRORS = 3  # distinct errors of GPUs to report
_FULL = 1024 * 1024  # bytes: a disk with less is full
_DISKS = tuple(map(Path, ("/", "/tmp", "/dev/shm")))  # noqa: S108  only their free space is read
_CORE_PATTERN = Path("/proc/sys/kernel/core_pattern")
_SYSTEM_CORES = Path("/var/lib/systemd/coredump")


def memory_facts(lines: list[str], groups: list[str], counted: int) -> list[NodeFact]:
    """Return the kernel's kills for memory; `groups` are the unit's own control groups.

    `counted` is the number of kills that the unit's control group counted: without a readable log
    it is all that is known.
    """
    facts = []
    for name, pid, size, group, is_limit in kernel_messages.kills(lines):
        is_own = any(group == own or group.startswith(f"{own.rstrip('/')}/") for own in groups)
        why = "its memory limit was reached" if is_limit else "memory was short"
        text = f"the kernel killed {name} (pid {pid}, {size_text(size)}) because {why}"
        facts.append(NodeFact("memory" if is_own else "others-memory", text))
    if counted and not any(fact.kind == "memory" for fact in facts):
        count = "a process" if counted == 1 else f"{counted} processes"
        text = f"the kernel killed {count} of the job because memory was short"
        facts.append(NodeFact("memory", text))
    return facts


def gpu_facts(lines: list[str]) -> list[NodeFact]:
    """Return the errors of GPUs with their remedies, the gravest first."""
    return [
        NodeFact(
            "gpu" if error.xid.ends_jobs else "gpu-notice",
            f"{error.label} on {error.address}: {error.xid.meaning}; {error.xid.remedy}",
        )
        for error in gpu_errors(lines)[:_GPU_ERRORS]
    ]


def disk_facts(places: tuple[Path, ...], usual: tuple[Path, ...] = _DISKS) -> list[NodeFact]:
    """Return the file systems of `places` and of `usual` folders that are full, each once."""
    facts: dict[int, NodeFact] = {}
    for place in (*usual, *places):
        with contextlib.suppress(OSError):  # the place does not exist
            device, disk = place.stat().st_dev, os.statvfs(place)
            size, free = disk.f_blocks * disk.f_frsize, disk.f_bfree * disk.f_frsize
            if size and free < _FULL:
                left = f"{size_text(free)} of {size_text(size)} are free"
                text = f"the disk of {place} is full ({left})"
            elif disk.f_files and not disk.f_ffree:
                text = f"the disk of {place} has no inodes left ({disk.f_files} files)"
            else:
                continue
            facts.setdefault(device, NodeFact("disk", text))
    return list(facts.values())


def size_text(size: int) -> str:
    """Return a size in words: `63.2 GiB`, `512.0 MiB`."""
    amount = float(size)
    for unit in ("B", "KiB", "MiB"):
        if amount < 1024:
            return f"{amount:.0f} B" if unit == "B" else f"{amount:.1f} {unit}"
        amount /= 1024
    return f"{amount:.1f} GiB"


def error_facts(path: Path) -> list[NodeFact]:
    """Return the exception that torch wrote to its error file.

    `{"message": {"message": "TypeError: …", "extraInfo": {…}}}`, or `{"message": "…"}`:
    pytorch@102a341a, torch/distributed/elastic/multiprocessing/errors/error_handler.py (2026-11-23;
    1.13 writes the same).
    """
    try:
        message = json.loads(read_job_file(path))["message"]
        text = str(message["message"] if isinstance(message, dict) else message)
    except (OSError, ValueError, KeyError, TypeError, RecursionError):
        return []  # no such file, or not torch's
    first = next((line.strip() for line in text.splitlines() if line.strip()), "")
    return [NodeFact("exception", f"torch's error file says: {first}")] if first else []


def crash_facts(
    lines: list[str],
    start: Path,
    began: float,
    core_pattern: Path = _CORE_PATTERN,
    system_cores: Path = _SYSTEM_CORES,
) -> list[NodeFact]:
    """Return the first process that crashed, and the newest core that was written since `began`.

    `start` is the folder in which the job started. `core_pattern` is the kernel's file that says
    where cores are, `system_cores` the folder of systemd-coredump.
    """
    crashed = kernel_messages.crashes(lines)
    core = _core_file(start, began, core_pattern, system_cores)
    if not crashed:
        text = f"the core of a crashed process is {core}"
        return [NodeFact("core", text)] if core else []
    name, pid, error, file = crashed[0]
    inside = f" in {file}" if file else ""
    where = f"; the core is {core}" if core else ""
    return [NodeFact("crash", f"{name} (pid {pid}) got a {error}{inside}{where}")]


def _core_file(start: Path, began: float, core_pattern: Path, system_cores: Path) -> Path | None:
    """Return the newest core that was written since `began`; None if there is none: core(5)."""
    with contextlib.suppress(OSError, ValueError):  # unreadable: no core is named
        pattern = core_pattern.read_text(encoding="utf-8").strip()
        if pattern.startswith("|"):
            folder, name = system_cores, "core."
            if "systemd-coredump" not in pattern:
                return None  # another program keeps it, such as apport
        else:
            folder = start / Path(pattern).parent  # an absolute path replaces `start`
            name = Path(pattern).name.split("%")[0]
            if not name:
                return None  # the pattern also fits other files
        cores = [path for path in folder.iterdir() if path.name.startswith(name)]
        times = {path.stat().st_mtime: path for path in cores if path.is_file()}
        newest = max(times)
        return times[newest] if newest >= began else None
    return None
