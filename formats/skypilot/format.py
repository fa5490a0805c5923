"""SkyPilot's tasks as a format (docs/do/skypilot.md)."""

from config.loading.formats import Format, Reading
from config.loading.overrides import NO_SUBSTITUTIONS, Substitutions
from config.yaml.marked_yaml import Document
from formats.skypilot.skypilot_file import SkyPilotFile
from formats.skypilot.skypilot_keys import keys_reference
from formats.skypilot.skypilot_task import task

_SKYPILOTS = frozenset(
    ("run", "num_nodes", "resources", "file_mounts", "envs", "secrets", "service", "pool")
)
_OTHERS = frozenset(("type", "apiVersion", "kind", "commands", "nodes", "instance_type", "hosts"))
"""Keys that a file of dstack, Kubernetes or gpuctl has, and none of SkyPilot's tasks."""


def _is_skypilot(document: Document) -> bool:
    """Return whether the file is a task of SkyPilot: by its keys, for it has no type."""
    data = document.data
    if not isinstance(data, dict) or not _OTHERS.isdisjoint(data):
        return False
    return not _SKYPILOTS.isdisjoint(data)


def _read(document: Document, _: Substitutions) -> Reading:
    """Return SkyPilot's task as a run file."""
    file = SkyPilotFile(document, NO_SUBSTITUTIONS)
    return file.reading(task(file))


FORMAT = Format(
    title="a task of SkyPilot",
    recognise=_is_skypilot,
    read=_read,
    pages=lambda: {"look-up/skypilot-keys.md": keys_reference()},
)
