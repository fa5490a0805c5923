"""Control groups of the lab's machines: one for each machine, in every hierarchy of the host.

A machine's systemd makes groups of its own. Shared with the caller's, units inside fail at random
(status=219/CGROUP, seen on a host with cgroup v1), so each machine starts in fresh ones. They are
also how a machine's processes are found when whoever booted it is gone.
"""

import os
import signal
import time
from contextlib import suppress
from pathlib import Path

from config.errors import LabError
from lab.places import Places


def hierarchies() -> tuple[Path, ...]:
    """Where the host's cgroup hierarchies are mounted: one for v2, one per controller for v1."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return tuple(Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2"))


def create(places: Places, machine: str) -> tuple[Path, ...]:
    """The machine's group in every hierarchy: a process moved to all of them is in the machine's.

    LabError when the host does not let us.
    """
    groups = []
    for hierarchy in hierarchies():
        group = hierarchy / places.cgroup / machine
        try:
            group.mkdir(parents=True, exist_ok=True)
            _inherit_cpuset(hierarchy, group.parent)
            _inherit_cpuset(hierarchy, group)
        except OSError as error:
            raise LabError(
                f"cannot make the control group {group}: {error.strerror}",
                "the lab needs root and cgroups that it may write to",
            ) from error
        groups.append(group)
    return tuple(groups)


def machines(places: Places) -> tuple[str, ...]:
    """Return every machine of the lab that has a group."""
    found = {
        group.name
        for hierarchy in hierarchies()
        for group in (hierarchy / places.cgroup).glob("*/")
        if (group / "cgroup.procs").exists()
    }
    return tuple(sorted(found))


def processes(places: Places, machine: str) -> set[int]:
    """The process ids of everything that runs in the machine, systemd-nspawn included."""
    found: set[int] = set()
    for hierarchy in hierarchies():
        # Groups come and go while they are read; os.walk passes over those that went.
        for group, _, _ in os.walk(hierarchy / places.cgroup / machine):
            with suppress(OSError):  # the group has gone, and what was in it
                found.update(int(pid) for pid in Path(group, "cgroup.procs").read_text().split())
    return found - {0}


def kill(places: Places, machine: str, timeout: float = 10.0) -> None:
    """No process of the machine is left; LabError when the kernel keeps one for `timeout`."""
    deadline = time.monotonic() + timeout
    while left := processes(places, machine):
        for pid in left:
            with suppress(ProcessLookupError):  # it has ended
                os.kill(pid, signal.SIGKILL)
        if time.monotonic() > deadline:
            raise LabError(
                f"processes of machine {machine} do not die: {sorted(left)}",
                f"see what they wait for in /proc/PID/stack, then `{places.command('stop')}`",
            )
        # The kernel has no event for "cgroup v1 is empty"; a killed machine is gone in ~20 ms.
        time.sleep(0.01)


def remove(places: Places, machine: str) -> None:
    """The machine's groups are gone, and ours with the last machine; its processes must be."""
    for hierarchy in hierarchies():
        top = hierarchy / places.cgroup
        nested = [Path(group) for group, _, _ in os.walk(top / machine, topdown=False)]
        for group in (*nested, top):
            with suppress(OSError):  # not there, or other machines are
                group.rmdir()


def _inherit_cpuset(hierarchy: Path, group: Path) -> None:
    """A v1 cpuset group takes no process before it has processors and memory nodes."""
    for setting in ("cpuset.cpus", "cpuset.mems"):
        own = group / setting
        if (hierarchy / "tasks").exists() and own.exists() and not own.read_text().strip():
            own.write_text((group.parent / setting).read_text())
