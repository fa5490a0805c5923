"""Read one manifest: fill in its placeholders, convert it, and compare it with its schema."""

from collections.abc import Callable, Iterable
from typing import TypeVar

from config.findings import MOST_FAULTS, Fault, Path
from config.manifests.given import Given
from config.manifests.manifest import Manifest
from config.manifests.placeholders import fill_placeholders
from config.manifests.schema import schema_faults
from config.yaml.marked_yaml import Document

T = TypeVar("T")


def read_manifest(
    written: Document, given: Given, schema: str, convert: Callable[[Manifest], T]
) -> tuple[T, Manifest]:
    """Return what the function makes of the manifest, and the manifest with its diagnostics."""
    document, unfilled, names = fill_placeholders(written, given)
    manifest = Manifest(document, given)
    manifest.placeholders |= names
    made = convert(manifest)
    of_schema = schema_faults(document, schema)
    unknown = [fault for fault in of_schema if fault.code == "E101"]
    faults = _one_per_place(unfilled, unknown, manifest.faults, of_schema)
    if more := faults[MOST_FAULTS:]:
        message = f"{len(more)} more mistakes are not listed"
        faults[MOST_FAULTS:] = [Fault("E108", message, "correct these first")]
    manifest.diagnostics += [document.locate(fault) for fault in faults]
    return made, manifest


def _one_per_place(*groups: Iterable[Fault]) -> list[Fault]:
    """Return the faults without those at a place where an earlier group has an error."""
    found: dict[Fault, None] = {}
    for group in groups:
        taken: set[Path] = {fault.at for fault in found if fault.code[0] == "E"}
        found |= dict.fromkeys(fault for fault in group if fault.at not in taken)
    return list(found)
