"""Control groups of the lab's machines: one for each machine, in every hierarchy of the host.

A machine's systemd creates groups. If it shared the caller's group, units inside would fail at
random (status=219/CGROUP, seen on a host with cgroup v1), so each machine starts in new groups.
They also identify a machine's processes after the process that booted it has ended.
"""

import errno
import os
import signal
import time
from contextlib import suppress
from functools import partial
from pathlib import Path

from config.errors import LabError
from config.files import os_errors_as
from config.polling import Timeouts, poll
from lab.places import Places

_DELEGATED = ("cgroup.procs", "tasks", "cgroup.threads", "cgroup.subtree_control")
"""Files that the owner of a group writes to (cgroups(7), "Cgroups delegation")."""


def hierarchies() -> tuple[Path, ...]:
    """Return the mount points of the cgroup hierarchies: one for v2, one per controller for v1."""
    mounts = [line.split() for line in Path("/proc/self/mounts").read_text().splitlines()]
    return tuple(Path(mount[1]) for mount in mounts if mount[2] in ("cgroup", "cgroup2"))


def create(places: Places, machine: str, owner: int) -> tuple[Path, ...]:
    """Create the machine's group in every hierarchy and return them all.

    A process that is moved into all of them belongs to the machine. The user `owner`, the machine's
    root, may create groups below them, as container runtimes do. LabError if the host forbids it.
    """
    groups = []
    for hierarchy in hierarchies():
        group = hierarchy / places.cgroup / machine
        hint = "the lab needs root and cgroups that it may write to"
        with os_errors_as(LabError, f"cannot make the control group {group}", hint):
            group.mkdir(parents=True, exist_ok=True)
            _inherit_cpuset(hierarchy, group.parent)
            _inherit_cpuset(hierarchy, group)
            for path in (group, *(group / name for name in _DELEGATED)):
                if path.exists():
                    os.chown(path, owner, owner)
        groups.append(group)
    return tuple(groups)


def machines(places: Places) -> tuple[str, ...]:
    """Return the names of the lab's machines that have a group, sorted."""
    names = {
        group.name
        for hierarchy in hierarchies()
        for group in (hierarchy / places.cgroup).glob("*/")
        if (group / "cgroup.procs").exists()
    }
    return tuple(sorted(names))


def processes(places: Places, machine: str) -> set[int]:
    """Return the ids of all processes of the machine, including systemd-nspawn."""
    pids: set[int] = set()
    for hierarchy in hierarchies():
        # Groups appear and disappear while they are read; os.walk skips those that disappeared.
        for group, _, _ in os.walk(hierarchy / places.cgroup / machine):
            with suppress(OSError):  # the group and its processes have ended
                pids.update(int(pid) for pid in Path(group, "cgroup.procs").read_text().split())
    return pids - {0}


def kill(places: Places, machine: str, timeout: float = 10.0) -> None:
    """Kill all processes of the machine; LabError if one still exists after `timeout` seconds."""

    def are_gone() -> bool | None:
        left = processes(places, machine)
        for pid in left:
            with suppress(ProcessLookupError):  # the process has ended
                os.kill(pid, signal.SIGKILL)
        return None if left else True

    # The kernel has no event for an empty group of cgroup v1; a killed machine ends in ~20 ms.
    if not poll(are_gone, Timeouts(timeout, 0.01)):
        left = sorted(processes(places, machine))
        raise LabError(
            f"processes of machine {machine} do not die: {left}",
            f"see what they wait for in /proc/PID/stack, then `{places.command('stop')}`",
        )


def remove(places: Places, machine: str, timeout: float = 10.0) -> None:
    """Remove the machine's groups, and the lab's with its last machine; no process may be left.

    A killed process that `processes` no longer finds keeps its group for some milliseconds more.
    Groups that are still in use after `timeout` seconds stay.
    """
    deadline = time.monotonic() + timeout
    for hierarchy in hierarchies():
        top = hierarchy / places.cgroup
        for group, _, _ in os.walk(top / machine, topdown=False):
            # cgroup v1 has no event for this.
            is_free = partial(_is_free, Path(group))
            poll(is_free, Timeouts(deadline - time.monotonic(), 0.01))
        with suppress(OSError):  # it does not exist, or it has other machines
            top.rmdir()


def _is_free(group: Path) -> bool | None:
    """Remove the group; return None if it is still in use."""
    try:
        group.rmdir()
    except OSError as error:
        return None if error.errno == errno.EBUSY else True
    return True


def _inherit_cpuset(hierarchy: Path, group: Path) -> None:
    """Copy the parent's cpuset: a v1 group accepts no process without processors and memory."""
    for setting in ("cpuset.cpus", "cpuset.mems"):
        own = group / setting
        if (hierarchy / "tasks").exists() and own.exists() and not own.read_text().strip():
            own.write_text((group.parent / setting).read_text())
