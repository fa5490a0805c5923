"""dstack's files as a format (docs/do/dstack.md)."""

from collections.abc import Mapping
from typing import Any

from config.loading.formats import Format, Reading
from config.loading.overrides import NO_SUBSTITUTIONS, Substitutions
from config.mistakes import Mistake
from config.yaml.marked_yaml import Document
from formats.dstack.dstack_file import DstackFile
from formats.dstack.dstack_keys import DSTACKS_ALONE, KEYS, TYPES, dstack_reference
from formats.dstack.dstack_task import RETRY_FORMS, is_dstacks, task

_NAMES = (".dstack.yml", ".dstack.yaml")
"""The ends of the names of dstack's files."""


def _is_dstack(document: Document) -> bool:
    """Return whether the file is one of dstack's: by its type, its name or a key of dstack alone.

    A file is dstack's if its `type` is one that only dstack has, or if its type is `task` and its
    name ends with `.dstack.yml` or it has a key, or a form of `retry`, of dstack's task alone.
    """
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return False
    if data["type"] in TYPES:
        return True
    is_named = document.file.endswith(_NAMES) or is_dstacks(data.get("retry"))
    return data["type"] == "task" and (is_named or not DSTACKS_ALONE.isdisjoint(data))


def _read(document: Document, _: Substitutions) -> Reading:
    """Return dstack's file as a run file."""
    file = DstackFile(document, NO_SUBSTITUTIONS)
    data: Mapping[str, Any] = {}
    kind = document.data["type"]
    if kind in TYPES:
        message = f"'type' is {kind}: gpuctl runs dstack's tasks alone"
        file.mistakes.append(Mistake("E229", message, TYPES[kind], ("type",)))
    else:
        data = task(file)
    return file.reading(data)


FORMAT = Format(
    title="a task of dstack",
    recognise=_is_dstack,
    read=_read,
    is_like_ours=True,
    keys={
        key.name: f"As in dstack's tasks: {key.text}." for key in KEYS if key.name in DSTACKS_ALONE
    },
    key_hint="dstack's tasks have it: docs/do/dstack.md",
    task_forms={"retry": RETRY_FORMS},
    pages=lambda: {"look-up/dstack-keys.md": dstack_reference()},
)
