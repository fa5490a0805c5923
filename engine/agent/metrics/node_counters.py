"""What the kernel of this node counts: processors, memory, disks, network, RDMA, control groups.

The parsers are pure functions of the files' text. Counters count since the boot, or since the
control group was made; whoever has two samples computes rates from them.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any, NamedTuple

_TICKS = os.sysconf("SC_CLK_TCK")
_SECTOR = 512  # bytes in /proc/diskstats, whatever the disk's sectors are: iostats.rst of Linux
_WORD = 4  # bytes in port_rcv_data and port_xmit_data: sysfs-class-infiniband of Linux
RDMA_COUNTERS = (
    "rx_bytes",
    "tx_bytes",
    "rx_drops",
    "retrans_bytes",
    "retrans_timeout_events",
    "unresponsive_remote_events",
)
"""The counters of EFA that are summed, in `hw_counters` of each port: EFA_DEFINE_PORT_STATS in
Linux' drivers/infiniband/hw/efa/efa_verbs.c (2026-11-23). Older drivers lack the last ones."""
_OTHER_RDMA = ("port_rcv_data", "port_xmit_data")


def busy_seconds(stat: str) -> float:
    """Return the processors' busy seconds since the boot, of all together, from /proc/stat.

    Idle and waiting for I/O do not count. A guest's time is in `user` already: proc(5).
    """
    ticks = list(map(int, stat.split("\n", 1)[0].split()[1:9]))
    user, nice, system, _, _, irq, softirq, steal = ticks
    return round((user + nice + system + irq + softirq + steal) / _TICKS, 2)


def memory(meminfo: str) -> list[int]:
    """Return the bytes in use and in total; what the kernel can free at once is not in use."""
    fields = dict(line.split(":", 1) for line in meminfo.splitlines() if ":" in line)
    total, free = (int(fields[name].split()[0]) << 10 for name in ("MemTotal", "MemAvailable"))
    return [total - free, total]


def disk_bytes(diskstats: str, disks: Iterable[str]) -> list[int]:
    """Return the bytes read and written, summed over `disks`."""
    names, read, written = set(disks), 0, 0
    for line in diskstats.splitlines():
        fields = line.split()
        if len(fields) > 9 and fields[2] in names:
            read, written = read + int(fields[5]), written + int(fields[9])
    return [read * _SECTOR, written * _SECTOR]


def network_bytes(net_dev: str, interfaces: Iterable[str]) -> list[int]:
    """Return the bytes received and sent, summed over `interfaces`, from /proc/net/dev."""
    names, received, sent = set(interfaces), 0, 0
    for line in net_dev.splitlines():
        name, colon, counts = line.partition(":")
        if colon and name.strip() in names:
            fields = counts.split()
            received, sent = received + int(fields[0]), sent + int(fields[8])
    return [received, sent]


def own_group(cgroup: str, controller: str) -> str | None:
    """Return the path of a process's control group, from /proc/PID/cgroup: cgroups(7).

    `controller` is one of version 1, or empty for version 2. None if the process is in the root
    group, which has the whole machine's processes, or in none.
    """
    for line in cgroup.splitlines():
        _, names, path = line.split(":", 2)
        if controller in names.split(","):
            return None if path == "/" or ".." in path else path
    return None


class _Group(NamedTuple):
    """Files with a control group's processor time, in units per second, and with its memory."""

    cpu: Path
    per_second: float
    memory: Path
    stat: Path
    cache: str


def _group(root: Path, cgroup: str) -> _Group | None:
    """Return the files of the control group whose /proc/PID/cgroup is `cgroup`.

    With both versions mounted, each has some of the controllers: the second one is then in
    `unified`, and counts processor time without a controller.
    """
    mounted = root / "sys/fs/cgroup"
    both, own = own_group(cgroup, ""), own_group(cgroup, "memory")
    times = [(mounted / part / f".{both}/cpu.stat", 1e6) for part in ("", "unified") if both]
    if old := own_group(cgroup, "cpuacct"):
        times.append((mounted / f"cpuacct{old}/cpuacct.usage", 1e9))
    sizes = [(mounted / f".{both}", "memory.current", "inactive_file")] if both else []
    if own:
        sizes.append((mounted / f"memory{own}", "memory.usage_in_bytes", "total_inactive_file"))
    times = [entry for entry in times if entry[0].exists()]
    sizes = [entry for entry in sizes if (entry[0] / entry[1]).exists()]
    if not times or not sizes:
        return None
    (cpu, per_second), (folder, name, cache) = times[0], sizes[0]
    return _Group(cpu, per_second, folder / name, folder / "memory.stat", cache)


def group_usage(cpu: str, per_second: float, size: str, stat: str, cache: str) -> list[float]:
    """Return a control group's processor seconds, and its bytes of memory.

    Files that it read and does not use, `cache` in memory.stat, are not in use.
    """
    used = cpu.split()[1] if cpu.startswith("usage_usec") else cpu
    inactive = dict(line.split() for line in stat.splitlines()).get(cache, "0")
    return [round(int(used) / per_second, 2), max(0, int(size) - int(inactive))]


class NodeCounters:
    """The counters of this node. `folder` is the run's; `root` is another one in tests."""

    def __init__(self, folder: Path, root: Path = Path("/")) -> None:
        self._folder, self._root = folder, root
        self._disks = _physical(root / "sys/block")
        self._interfaces = _physical(root / "sys/class/net") or _all_but_loopback(root)
        self._rdma = _rdma_files(root)
        self._group = _part(lambda: _group(root, self._text("proc/self/cgroup")))

    def read(self) -> dict[str, Any]:
        """Return a sample; what cannot be read is missing in it.

        cpu_s: busy seconds of the processors; cores: their number; memory: bytes used, in total;
        space: the same of the file system of the run; disk: bytes read, written; network and rdma:
        bytes received, sent, and of rdma the other RDMA_COUNTERS; job: the run's processor seconds
        and bytes of memory on this node.
        """
        counters = {
            "cpu_s": _part(lambda: busy_seconds(self._text("proc/stat"))),
            "cores": os.cpu_count(),
            "memory": _part(lambda: memory(self._text("proc/meminfo"))),
            "space": _part(self._space),
            "disk": _part(lambda: disk_bytes(self._text("proc/diskstats"), self._disks)),
            "network": _part(lambda: network_bytes(self._text("proc/net/dev"), self._interfaces)),
            "rdma": _part(self._rdma_sums),
            "job": _part(self._job),
        }
        return {name: value for name, value in counters.items() if value is not None}

    def _text(self, path: str) -> str:
        return (self._root / path).read_text(encoding="ascii", errors="replace")

    def _space(self) -> list[int]:
        disk = os.statvfs(self._folder)
        total = disk.f_blocks * disk.f_frsize
        return [total - disk.f_bavail * disk.f_frsize, total]

    def _rdma_sums(self) -> list[int] | None:
        if not self._rdma:
            return None
        sums = [0] * len(RDMA_COUNTERS)
        for place, unit, path in self._rdma:
            value = _part(lambda path=path: int(path.read_bytes()))  # type: ignore[misc]
            sums[place] += (value or 0) * unit
        return sums

    def _job(self) -> list[float] | None:
        if self._group is None:
            return None
        cpu, per_second, size, stat, cache = self._group
        texts = cpu.read_text(), size.read_text(), stat.read_text()
        return group_usage(texts[0], per_second, texts[1], texts[2], cache)


def _part(read: Callable[[], Any]) -> Any:
    """Return what `read` returns; None if the kernel has no such file, or it has another form."""
    try:
        return read()
    except (OSError, ValueError, KeyError, IndexError):
        return None


def _physical(folder: Path) -> list[str]:
    """Return the devices in the folder that are hardware: no loop devices, bridges or volumes."""
    return (
        _part(lambda: [path.name for path in folder.iterdir() if (path / "device").exists()]) or []
    )


def _all_but_loopback(root: Path) -> list[str]:
    """Return the interfaces of a machine that has no hardware, such as a container."""
    names = _part(lambda: [path.name for path in (root / "sys/class/net").iterdir()]) or []
    return [name for name in names if name != "lo"]


def _rdma_files(root: Path) -> list[tuple[int, int, Path]]:
    """Return files of RDMA counters: place in RDMA_COUNTERS, bytes of a unit, path."""
    files = []
    for port in sorted((root / "sys/class/infiniband").glob("*/ports/*")):
        own = [(place, 1, port / "hw_counters" / name) for place, name in enumerate(RDMA_COUNTERS)]
        if not own[0][2].exists():  # no EFA: the counters of InfiniBand
            own = [(n, _WORD, port / "counters" / name) for n, name in enumerate(_OTHER_RDMA)]
        files += [entry for entry in own if entry[2].exists()]
    return files
