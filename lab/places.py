"""Where the lab lives on this machine: one lab per machine, so the places are fixed."""

from pathlib import Path

from config.folders import cache_home

RUNTIME = Path("/run/gpuctl-lab")
"""What only matters while the lab is up: pids, the network's former state."""

MACHINES = Path("/var/lib/gpuctl-lab/machines")
"""One folder per machine: its overlay, its console."""

FILE_SYSTEMS = Path("/var/lib/gpuctl-lab/file-systems")
"""One folder per shared file system that can be mounted; every machine sees them all."""

NAMESPACE = "gpuctl-lab"
"""The network namespace with the bridge and every machine."""

CGROUP = "gpuctl-lab"
"""The group, in every cgroup hierarchy, that has one group per machine."""


def images() -> Path:
    """The folder with one root file system per flavour of image."""
    return cache_home() / "lab"
