"""Read one manifest: fill in its placeholders, convert it, and compare it with its schema."""

from collections.abc import Callable, Iterable
from pathlib import Path as FilePath
from typing import TypeVar

from config.loading.overrides import Substitutions
from config.mistakes import MOST_MISTAKES, Mistake, Path
from config.yaml.marked_yaml import Document
from formats.foreign_file import ForeignFile
from formats.kubernetes.placeholders import fill_placeholders
from formats.kubernetes.schema import schema_mistakes

T = TypeVar("T")


def read_manifest(
    written: Document, given: Substitutions, schema: FilePath, convert: Callable[[ForeignFile], T]
) -> tuple[T, ForeignFile]:
    """Return what the function makes of the manifest, and the manifest with its diagnostics."""
    document, unfilled, names = fill_placeholders(written, given)
    manifest = ForeignFile(document, given)
    manifest.placeholders |= names
    made = convert(manifest)
    of_schema = schema_mistakes(document, schema)
    unknown = [mistake for mistake in of_schema if mistake.code == "E101"]
    refused = [
        mistake.at for mistake in manifest.mistakes if mistake.code == "E225" and mistake.on_key
    ]
    groups = (unfilled, unknown, manifest.mistakes, of_schema)
    mistakes = [
        mistake
        for mistake in _one_per_place(*groups)
        if not any(mistake.at != at and mistake.at[: len(at)] == at for at in refused)
    ]
    if more := mistakes[MOST_MISTAKES:]:
        message = f"{len(more)} more mistakes are not listed"
        mistakes[MOST_MISTAKES:] = [Mistake("E108", message, "correct these first")]
    manifest.diagnostics += [document.locate(mistake) for mistake in mistakes]
    return made, manifest


def _one_per_place(*groups: Iterable[Mistake]) -> list[Mistake]:
    """Return the mistakes without those at a place where an earlier group has an error."""
    mistakes: dict[Mistake, None] = {}
    for group in groups:
        taken: set[Path] = {mistake.at for mistake in mistakes if mistake.code[0] == "E"}
        mistakes |= dict.fromkeys(mistake for mistake in group if mistake.at not in taken)
    return list(mistakes)
