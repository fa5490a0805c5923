"""What a crashed lab left on this machine, and its removal.

Nothing here trusts a record of the crashed process: machines are found by their control groups and
folders, the rest by its fixed names and by the number on the lab's routes.
"""

import shutil
from pathlib import Path

from lab import cgroups, image, machine, network
from lab.places import FILE_SYSTEMS, MACHINES


def found() -> tuple[str, ...]:
    """What of a lab is here (`machine i-0abc…`, `route 198.18.0.0/16`), without touching it."""
    machines = tuple(f"machine {name}" for name in _machines())
    builds = tuple(f"interrupted image {path.name}" for path in image.interrupted())
    files = tuple(f"file system {path.name}" for path in _file_systems())
    return machines + files + network.traces() + builds


def clear() -> tuple[str, ...]:
    """Nothing of a lab is left on this machine; says what was removed, in `found`'s words.

    LabError when something does not go.
    """
    removed = found()
    for name in _machines():
        cgroups.kill(name)
        machine.remove(name)
    for path in _file_systems():
        shutil.rmtree(path)  # no machine has it mounted any more
    network.down()
    image.remove_interrupted()
    return removed


def _file_systems() -> tuple[Path, ...]:
    return tuple(sorted(FILE_SYSTEMS.iterdir())) if FILE_SYSTEMS.is_dir() else ()


def _machines() -> tuple[str, ...]:
    folders = (path.name for path in MACHINES.iterdir()) if MACHINES.is_dir() else ()
    return tuple(sorted({*cgroups.machines(), *folders}))
