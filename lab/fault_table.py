"""The table of the faults that are set, for the lab's API and for its machines.

`lab.fault_kinds` has the names and checks the arguments; `lab.api.faults` acts on them.
"""

import json
from collections.abc import Mapping
from pathlib import Path

POLICY = "policy"
"""The fault that limits what the lab's credentials may do."""

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


def read(table: Path) -> dict[str, tuple[str, ...]]:
    """Return the faults that are set, none without a file; ValueError if it is not valid."""
    try:
        text = table.read_text()
    except FileNotFoundError:
        return {}
    return {name: tuple(arguments) for name, arguments in json.loads(text).items()}


def write(table: Path, faults: Mapping[str, tuple[str, ...]]) -> None:
    """Replace the set of faults; it applies from the next request on."""
    temporary = table.with_suffix(".tmp")
    temporary.write_text(json.dumps(faults, indent=2) + "\n")
    temporary.replace(table)
