"""dstack's files, read as run files, so that people run them unchanged (docs/dstack.md)."""

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from config.diagnostic import Diagnostic
from config.dstack.dstack_keys import DSTACKS_ALONE, TYPES
from config.dstack.dstack_task import task
from config.dstack.reading import Reading
from config.dstack.task_retry import is_dstacks
from config.manifests.converted import document_with
from config.manifests.given import NOTHING_GIVEN
from config.mistakes import Mistake
from config.yaml.marked_yaml import Document

NAMES = (".dstack.yml", ".dstack.yaml")
"""The ends of the names of dstack's files."""


def is_dstack(document: Document) -> bool:
    """Return whether the file is one of dstack's: by its type, its name or a key of dstack alone.

    A file is dstack's if its `type` is one that only dstack has, or if its type is `task` and its
    name ends with `.dstack.yml` or it has a key, or a form of `retry`, of dstack's task alone.
    """
    data = document.data
    if not isinstance(data, dict) or not isinstance(data.get("type"), str):
        return False
    if data["type"] in TYPES:
        return True
    is_named = document.file.endswith(NAMES) or is_dstacks(data.get("retry"))
    return data["type"] == "task" and (is_named or not DSTACKS_ALONE.isdisjoint(data))


def run_file(document: Document) -> tuple[Document | None, list[Diagnostic]]:
    """Return dstack's file as a run file, or None if it cannot be one, and all diagnostics."""
    reading = Reading(document, NOTHING_GIVEN)
    data: Mapping[str, Any] = {}
    kind = document.data["type"]
    if kind in TYPES:
        message = f"'type' is {kind}: gpuctl runs dstack's tasks alone"
        reading.mistakes.append(Mistake("E229", message, TYPES[kind], ("type",)))
    else:
        data = task(reading)
    diagnostics = [document.locate(mistake) for mistake in reading.mistakes]
    if reading.is_refused:
        return None, diagnostics
    return document_with(data, document), diagnostics


def strict(diagnostic: Diagnostic) -> Diagnostic:
    """Return the diagnostic with unknown keys as errors."""
    return replace(diagnostic, code="E101") if diagnostic.code == "W207" else diagnostic
