"""Rules about a node's system: answers in time, software, mounts, clock and disks."""

from collections import Counter
from collections.abc import Iterator
from re import findall

from config.command_text import command_text
from provision.health.facts import UNCHECKED, Disk, NodeFacts
from provision.health.model import REBOOT, REPLACE, AllFacts, Deviation, Rule, Severity, from_checks

_FACTS_IN_WORDS = {
    "gpus": "the GPUs",
    "remap": "remapped rows",
    "disk": "disks",
    "verify": "the node's software",
}


def _check_in_time(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each command that had to be ended; a hanging GPU or file system does that."""
    for name in facts.ended:
        subject = _FACTS_IN_WORDS.get(name, name)
        yield Deviation(f"facts about {subject}", "an answer in time", "none")


IN_TIME = Rule(
    id="in-time",
    reads="each command, with its limit of 5 to 90 s",
    expects="an end by itself",
    severity="reboot",
    remedy=REBOOT,
    source="docs/develop/node-health.md",
    check=_check_in_time,
    is_short=True,
)


_SOFTWARE = (
    "NCCL",
    "nccl-tests",
    "libraries of nccl-tests",
    "EFA installer",
    "NCCL plugin for EFA",
    "Open MPI",
)


SOFTWARE = Rule(
    id="software",
    reads="`/opt/gpuctl/verify`: ldd of nccl-tests in a login, dlopen of the plugin, versions",
    expects="the versions of the cluster file, and no missing library",
    severity="isolate",
    remedy="install it, or name an image that has it and repeat `gpuctl up`",
    source="docs/do/software.md",
    check=lambda _, facts, __: from_checks(facts, *_SOFTWARE, UNCHECKED),
)


def _check_mounts(_: str, facts: NodeFacts, __: AllFacts) -> list[Deviation]:
    """Return the folders on which nothing is mounted."""
    return from_checks(facts, *(name for name in facts.checks or () if name.startswith("/")))


MOUNTS = Rule(
    id="mounts",
    reads="`mountpoint`",
    expects="`storage.scratch` and `storage.shared` mounted",
    severity="reboot",
    remedy=f"`mount -a` on the node, or {REBOOT}",
    source="docs/do/storage.md",
    check=_check_mounts,
)


_MINOR = ("kernel", "system")
"""Differences that a job survives."""


def _check_versions(name: str, _: NodeFacts, fleet: AllFacts) -> Iterator[Deviation]:
    """Yield each version of the node that is not that of most nodes, or of the newest of two."""
    known = {node: _versions(fact) for node, fact in fleet.facts.items()}
    for software, own in known[name].items():
        if not own:
            continue
        all_of = [versions[software] for versions in known.values() if versions.get(software)]
        usual = _usual(all_of)
        if own != usual:
            seen = f"{own}, alone among {len(all_of)} nodes"
            if (same := all_of.count(own)) > 1:
                seen = f"{own}, as {same} of {len(all_of)} nodes"
            severity: Severity | None = "watch" if software in _MINOR else None
            yield Deviation(f"version of {software}", f"{usual} as on the others", seen, severity)


def _versions(facts: NodeFacts) -> dict[str, str]:
    drivers = sorted({gpu.driver for gpu in facts.gpus or ()})
    return {"NVIDIA driver": " ".join(drivers), **facts.versions}


def _usual(versions: list[str]) -> str:
    """Return the most frequent version, and of several the newest."""
    counts = Counter(versions)
    return max(
        counts,
        key=lambda version: (counts[version], [int(n) for n in findall(r"\d+", version)], version),
    )


VERSIONS = Rule(
    id="versions",
    reads="nvidia-smi, `uname -r`, /etc/os-release, EFA's installer and driver, NCCL's file name,"
    " /usr/local/cuda, `mpirun --version`",
    expects="the version of most nodes; another kernel or system is only for watching",
    severity="isolate",
    remedy=f"install the version of the others, or {REPLACE}",
    source="docs/develop/node-health.md",
    check=_check_versions,
)


_CLOCK_OFF_S = 1.0
_CLOCK_FAR_OFF_S = 30.0
"""AWS refuses signed requests at 5 minutes; logs and checkpoints are out of order before."""


def _check_clock(name: str, _: NodeFacts, fleet: AllFacts) -> list[Deviation]:
    """Return a clock that is off the middle one of all nodes and this machine."""
    off = fleet.offsets.get(name, 0.0) - _middle([0.0, *fleet.offsets.values()])
    if abs(off) < _CLOCK_OFF_S:
        return []
    seen = f"{abs(off):.0f} s {'ahead' if off > 0 else 'behind'}"
    severity: Severity | None = None if abs(off) >= _CLOCK_FAR_OFF_S else "watch"
    return [Deviation("clock", "within 1 s of the others", seen, severity)]


def _middle(offsets: list[float]) -> float:
    """Return the middle one; of two middle ones that which is nearer to this machine's clock."""
    ordered, half = sorted(offsets), len(offsets) // 2
    if len(ordered) % 2:
        return ordered[half]
    return min(ordered[half - 1 : half + 1], key=abs)


CLOCK = Rule(
    id="clock",
    reads="`date`, with the time that the question took",
    expects="at most 1 s off the middle of all clocks; from 30 s on no job should use the node",
    severity="reboot",
    remedy="`systemctl restart chronyd` (or `chrony`) on the node sets the clock; if it drifts"
    " again, reboot the node",
    source="EC2 User Guide, Amazon Time Sync Service (169.254.169.123; from memory)",
    check=_check_clock,
    is_short=True,
)


_FULL_KIB = 100 * 1024
_LITTLE_KIB = 2 * 1024 * 1024


def _check_disk(_: str, facts: NodeFacts, __: AllFacts) -> Iterator[Deviation]:
    """Yield each file system with little room, or few inodes."""
    for disk in facts.disks:
        little = min(_LITTLE_KIB, disk.size_kib // 10)
        if disk.free_kib < little:
            full = disk.free_kib < min(_FULL_KIB, disk.size_kib // 50)
            seen = f"{disk.free_kib // 1024} MiB of {disk.size_kib // 1024} MiB"
            yield _disk_deviation(
                disk, f"free space in {disk.path}", f"{little // 1024} MiB", seen, full
            )
        if disk.free_inodes < 1:
            yield _disk_deviation(disk, f"free inodes in {disk.path}", "1 %", "less", True)


def _disk_deviation(disk: Disk, subject: str, expected: str, seen: str, is_full: bool) -> Deviation:
    remedy = (
        f"{command_text('du -xh --max-depth=2 {}', disk.path)} on the node shows what to remove"
    )
    return Deviation(subject, expected, seen, None if is_full else "watch", remedy)


DISK = Rule(
    id="disk",
    reads="`df -Pk`, `df -Pi` for /, /tmp, /dev/shm, scratch and shared storage",
    expects="2 GiB free, or a tenth of a smaller one; below 100 MiB, or without inodes, no job"
    " should use the node",
    severity="isolate",
    remedy="remove files",
    source="docs/develop/node-health.md",
    check=_check_disk,
    is_short=True,
)
