"""The remains of a crashed lab on this machine, and their removal.

This module uses no record of the crashed process: it finds machines by their control groups and
folders, and the rest by the lab's names and by the number on its routes.
"""

import shutil
from pathlib import Path

from lab.images import image
from lab.machines import cgroups, machine
from lab.network import bridge
from lab.places import Places


def find(places: Places) -> tuple[str, ...]:
    """Return the lab's remains (`machine i-0abc…`, `route 198.18.0.0/16`) without changing any.

    Interrupted images belong to no lab, so they are in every lab's result.
    """
    machines = tuple(f"machine {name}" for name in _machines(places))
    builds = tuple(f"interrupted image {path.name}" for path in image.interrupted())
    files = tuple(f"file system {path.name}" for path in _file_systems(places))
    return machines + files + bridge.traces(places) + builds


def clear(places: Places) -> tuple[str, ...]:
    """Remove all remains of the lab; return them in the words of `found`.

    Raise LabError if something cannot be removed.
    """
    removed = find(places)
    for name in _machines(places):
        cgroups.kill(places, name)
        machine.remove(places, name)
    for path in _file_systems(places):
        shutil.rmtree(path)  # all machines that mounted it are removed
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
