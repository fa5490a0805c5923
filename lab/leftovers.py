"""What a crashed lab left on this machine, and its removal.

Nothing here trusts a record of the crashed process: machines are found by their control groups and
folders, the rest by the lab's own names and by the number on its routes.
"""

import shutil
from pathlib import Path

from lab.images import image
from lab.machines import cgroups, machine
from lab.network import bridge
from lab.places import Places


def found(places: Places) -> tuple[str, ...]:
    """Return what of the lab is here (`machine i-0abc…`, `route 198.18.0.0/16`); touch nothing.

    Images that no build works on are everybody's, and found with every lab.
    """
    machines = tuple(f"machine {name}" for name in _machines(places))
    builds = tuple(f"interrupted image {path.name}" for path in image.interrupted())
    files = tuple(f"file system {path.name}" for path in _file_systems(places))
    return machines + files + bridge.traces(places) + builds


def clear(places: Places) -> tuple[str, ...]:
    """Remove all that is left of the lab; return what that was, in `found`'s words.

    LabError when something does not go.
    """
    removed = found(places)
    for name in _machines(places):
        cgroups.kill(places, name)
        machine.remove(places, name)
    for path in _file_systems(places):
        shutil.rmtree(path)  # no machine has it mounted any more
    bridge.clear(places)
    image.remove_interrupted()
    return removed


def _file_systems(places: Places) -> tuple[Path, ...]:
    folder = places.file_systems
    return tuple(sorted(folder.iterdir())) if folder.is_dir() else ()


def _machines(places: Places) -> tuple[str, ...]:
    folder = places.machines
    folders = (path.name for path in folder.iterdir()) if folder.is_dir() else ()
    return tuple(sorted({*cgroups.machines(places), *folders}))
