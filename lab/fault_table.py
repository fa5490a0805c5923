"""The table of the faults that are set, for the lab's API and for its machines.

`lab.fault_kinds` has the names and checks the arguments; `lab.api.faults` acts on them.
"""

import json
import time
from collections.abc import Mapping, Sequence
from functools import lru_cache
from pathlib import Path

POLICY = "policy"
"""The fault that limits what the lab's credentials may do."""

BOUNDARY = "boundary"
"""The fault that is the permissions boundary of the lab's credentials."""

PROVIDER = "provider"
"""The fault that the lab's Pulumi provider reads."""

SLOW_NETWORK = "slow-network"
"""The fault that running machines read: the ids of the slow ones, and their rate."""

HARDWARE = "hardware"
"""The fault of broken hardware of running machines: their ids, then NAME=VALUE."""

CLOUD_INIT, ROOT_LOGIN, FABRIC_MANAGER = "cloud-init", "root-login", "nvidia-fabricmanager"
SLOW_BOOT = "slow-boot"
"""Faults of machines that are launched while they are set (`lab.machines.image_faults`)."""

OF_MACHINES = frozenset((SLOW_NETWORK, HARDWARE, CLOUD_INIT, ROOT_LOGIN, FABRIC_MANAGER, SLOW_BOOT))
"""Faults that the API never shows."""


_SETTLED_NS = 1_000_000_000
"""A file that changed within this time is read again: another change may have left the same time,
which file systems keep to some milliseconds."""


def read(table: Path) -> dict[str, tuple[str, ...]]:
    """Return the faults that are set, none without a file; ValueError if it is not valid.

    Each request asks several times, so a file that has not changed is read once.
    """
    try:
        file = table.stat()
        if abs(time.time_ns() - file.st_mtime_ns) < _SETTLED_NS:
            return _read(table)
        change = (file.st_ino, file.st_size, file.st_mtime_ns, file.st_ctime_ns)
        return dict(_read_once(table, change))
    except FileNotFoundError:
        return {}


@lru_cache(maxsize=8)
def _read_once(table: Path, change: tuple[int, ...]) -> Mapping[str, tuple[str, ...]]:
    """Return the faults of the file, as it is since `change`."""
    del change
    return _read(table)


def _read(table: Path) -> dict[str, tuple[str, ...]]:
    faults = json.loads(table.read_text())
    return {name: tuple(arguments) for name, arguments in faults.items()}


def write(table: Path, faults: Mapping[str, Sequence[str]]) -> None:
    """Replace the set of faults; it applies from the next request on."""
    temporary = table.with_suffix(".tmp")
    temporary.write_text(json.dumps(faults, indent=2) + "\n")
    temporary.replace(table)
