"""Disk room: no file system that a job uses is full, or nearly."""

from collections.abc import Iterator

from config.command_text import command_text
from provision.health.facts import Disk, NodeFacts
from provision.health.model import AllFacts, Deviation, Rule

_FULL_KIB = 100 * 1024
_LITTLE_KIB = 2 * 1024 * 1024


def check(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each file system with little room, or few inodes."""
    for disk in facts.disks:
        little = min(_LITTLE_KIB, disk.size_kib // 10)
        if disk.free_kib < little:
            full = disk.free_kib < min(_FULL_KIB, disk.size_kib // 50)
            seen = f"{disk.free_kib // 1024} MiB of {disk.size_kib // 1024} MiB"
            yield _deviation(
                disk, f"free space in {disk.path}", f"{little // 1024} MiB", seen, full
            )
        if disk.free_inodes < 1:
            yield _deviation(disk, f"free inodes in {disk.path}", "1 %", "less", True)


def _deviation(disk: Disk, subject: str, expected: str, seen: str, is_full: bool) -> Deviation:
    remedy = (
        f"{command_text('du -xh --max-depth=2 {}', disk.path)} on the node shows what to remove"
    )
    return Deviation(subject, expected, seen, None if is_full else "watch", remedy)


RULE = Rule(
    id="disk",
    reads="`df -Pk`, `df -Pi` for /, /tmp, /dev/shm, scratch and shared storage",
    expects="2 GiB free, or a tenth of a smaller one; below 100 MiB, or without inodes, no job"
    " should use the node",
    severity="isolate",
    remedy="remove files",
    source="docs/develop/node-health.md",
    check=check,
    is_short=True,
)
