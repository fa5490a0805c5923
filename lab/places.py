"""The places of a lab on this machine, which follow from the lab's name.

The default lab's places contain no name; those of a named lab contain its name, so that labs do not
share any. `lab.network.slots` divides what the host has only once (addresses, route numbers).
"""

import os
import re
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

from config.errors import InputError, LabError
from config.folders import cache_home, state_home

DEFAULT = "default"
"""The name of the lab of `gpuctl --lab`."""

_NAME = re.compile(r"[a-z0-9]([a-z0-9-]{0,14}[a-z0-9])?")
ROOT = Path("/")
_RUNTIME, _NAMED_RUNTIMES = "run/gpuctl-lab", "run/gpuctl-labs"
_DISK, _NAMED_DISKS = "var/lib/gpuctl-lab", "var/lib/gpuctl-lab/labs"


@dataclass(unsafe_hash=True)
class Places:
    """The places of the lab `name` on the machine with this root folder.

    InputError if the name is not valid.
    """

    name: str
    root: Path = ROOT

    def __post_init__(self) -> None:
        if not _NAME.fullmatch(self.name):
            raise InputError(
                f"'{self.name}' is no name for a lab",
                "use 1 to 16 lower-case letters, digits and dashes, as in `--lab-name b`;"
                " begin and end with a letter or digit",
            )
        label = "gpuctl-lab" if self.is_default else f"gpuctl-lab-{self.name}"
        runtime = _RUNTIME if self.is_default else f"{_NAMED_RUNTIMES}/{self.name}"
        disk = _DISK if self.is_default else f"{_NAMED_DISKS}/{self.name}"
        self.runtime = self.root / runtime
        """The folder for data of the running lab: process ids, the network's former state."""
        self.changing = self.runtime.with_name(f"{self.runtime.name}.lock")
        """The lock for starting or stopping the lab; outside `runtime`, which stopping removes."""
        self.record = self.runtime / "lab.json"
        """The file with the running lab's `lab.state.LabRecord`."""
        self.alive = self.runtime / "daemon.lock"
        """The lock that the daemon holds as long as it lives."""
        self.log = self.runtime / "daemon.log"
        """The daemon's log, which remains after the lab is stopped."""
        self.capacity = self.runtime / "capacity.json"
        """The table of capacity per zone and type: `lab.api.region.CapacityTable`."""
        self.faults = self.runtime / "faults.json"
        """The table of faults: `lab.fault_table`."""
        self.requests = self.runtime / "requests"
        """The folder in which the API records its requests, as long as it exists."""
        self.disk = self.root / disk
        """The folder of `machines` and `file_systems`."""
        self.machines = self.disk / "machines"
        """The folder with one folder per machine, for its overlay and console."""
        self.file_systems = self.disk / "file-systems"
        """The folder with one folder per shared file system; every machine sees all of them."""
        self.namespace = label
        """The network namespace of the bridge and all machines."""
        self.cgroup = label
        """The group in every cgroup hierarchy that contains one group per machine."""
        self.table = label
        """The name of the nftables tables, on the host and in the namespace."""

    @property
    def is_default(self) -> bool:
        """Return whether this is the lab of `--lab`."""
        return self.name == DEFAULT

    @property
    def options(self) -> tuple[str, ...]:
        """The options that make a gpuctl command act on this lab."""
        return ("--lab",) if self.is_default else ("--lab-name", self.name)

    def command(self, words: str) -> str:
        """Return the `gpuctl lab` command for this lab that ends with `words`."""
        chosen = "" if self.is_default else f"--lab-name {self.name} "
        return f"gpuctl {chosen}lab {words}"

    @property
    def state(self) -> Path:
        """The folder of the user's state: clusters, Pulumi's state, the history of runs."""
        return state_home() / "lab" if self.is_default else state_home() / "labs" / self.name


def everywhere(root: Path = ROOT) -> tuple[Places, ...]:
    """Return the default lab and all others that have a folder on this machine, by name."""
    with for_root_alone():
        names = {
            folder.name
            for parent in (root / _NAMED_RUNTIMES, root / _NAMED_DISKS)
            for folder in (parent.iterdir() if parent.is_dir() else ())
            if folder.is_dir() and _NAME.fullmatch(folder.name)
        }
    return (Places(DEFAULT, root), *(Places(name, root) for name in sorted(names - {DEFAULT})))


def make_private(folder: Path, root: Path = ROOT) -> None:
    """Create the folder, and those of labs above it, for their owner alone.

    This also closes folders that exist and are open to others.
    """
    tops = (root / _NAMED_RUNTIMES, root / _DISK)
    for each in (*reversed(folder.parents), folder):
        if each == folder or any(map(each.is_relative_to, tops)):
            each.mkdir(mode=0o700, exist_ok=True)
            each.chmod(0o700)


def open_private(path: Path) -> IO[str]:
    """Open a lock file for its owner alone: any user who can read a file can lock it."""
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT, 0o600)
    os.fchmod(descriptor, 0o600)
    return os.fdopen(descriptor, "w")


@contextmanager
def for_root_alone() -> Iterator[None]:
    """Raise LabError if this process's user may not open the folders of labs."""
    try:
        yield
    except PermissionError as error:
        raise LabError(
            f"{error.filename} is closed to you", "labs belong to root: run gpuctl as root"
        ) from None


def images() -> Path:
    """Return the folder with one root file system per flavour of image."""
    return cache_home() / "lab"
