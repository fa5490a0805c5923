"""The folder in memory for what runs need on a node while they go on."""

from __future__ import annotations

import os
from pathlib import Path

MEMORY_VARIABLE = "GPUCTL_RUNTIME_DIR"


def memory_folder() -> Path:
    """Return the folder in memory for what runs need while they go on.

    It is that of MEMORY_VARIABLE; else /run/gpuctl where systemd runs, for root, and one below
    /dev/shm for others. In containers /run is on a disk.
    """
    if named := os.environ.get(MEMORY_VARIABLE):
        return Path(named)
    if has_systemd():
        return Path("/run/gpuctl")
    return Path(f"/dev/shm/gpuctl-{os.geteuid()}")  # noqa: S108  its owner is checked below


def has_systemd() -> bool:
    """Return whether systemd can keep units here: it runs (sd_booted(3)), and for root.

    Its units would not have MEMORY_VARIABLE.
    """
    runs = Path("/run/systemd/system").is_dir()
    return runs and os.geteuid() == 0 and not os.environ.get(MEMORY_VARIABLE)


def make_memory_folder() -> Path:
    """Create the folder, for this user only, and return it.

    Raises PermissionError if it is another user's: everybody may create names in /dev/shm.
    """
    folder = memory_folder()
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    if folder.lstat().st_uid != os.geteuid():
        raise PermissionError(f"{folder} is not this user's: root has to remove it")
    return folder
