"""A format of Kubernetes manifests, made of the kinds of jobs that it converts.

A manifest becomes the data of a run file and is then checked and run like any other run file. Its
values keep their position in the manifest.
"""

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from config.loading.formats import Format, ManifestKind, Reading
from config.loading.manifests import kind_of_manifest
from config.loading.overrides import Substitutions
from config.mistakes import Mistake
from config.run.requirements import Requires
from config.yaml.marked_yaml import Document
from formats.converted import document_with
from formats.foreign_file import ForeignFile
from formats.kubernetes.manifest_reading import read_manifest
from formats.kubernetes.requirements import pod_requirements

Parts = Mapping[ManifestKind, tuple[str, str]]


@dataclass(frozen=True)
class Job:
    """A kind of manifest that describes a run: the file with its fields, and its converter."""

    schema: Path
    convert: Callable[[ForeignFile], dict[str, Any]]


def _the_job_alone(document: Document, _: Substitutions) -> Iterable[Document]:
    return (document,)


def manifest_format(
    jobs: Mapping[ManifestKind, Job],
    parts: Parts | None = None,
    documents: Callable[[Document, Substitutions], Iterable[Document]] = _the_job_alone,
) -> Format:
    """Return the format of these jobs.

    `parts` are manifests that a job uses, each with the message and hint for a file without a job.
    `documents` are those that describe the pods of a job.
    """
    known_parts = parts or {}

    def recognise(document: Document) -> bool:
        kind = kind_of_manifest(document.data)
        return kind in jobs or kind in known_parts

    def read(document: Document, given: Substitutions) -> Reading:
        kind = kind_of_manifest(document.data)
        if kind in known_parts:
            mistake = Mistake("E224", *known_parts[kind], ("kind",))
            return Reading(None, [document.locate(mistake)])
        data, manifest = read_manifest(document, given, jobs[kind].schema, jobs[kind].convert)
        names = frozenset(manifest.placeholders)
        if any(diagnostic.severity == "error" for diagnostic in manifest.diagnostics):
            return Reading(None, manifest.diagnostics, names)
        return Reading(document_with(data, manifest.document), manifest.diagnostics, names)

    def requirements(document: Document, given: Substitutions) -> Requires | None:
        if kind_of_manifest(document.data) not in jobs:
            return None
        return pod_requirements(documents(document, given), given)

    return Format(
        title="a manifest of a run",
        recognise=recognise,
        read=read,
        requirements=requirements,
        jobs=tuple(jobs),
        parts=known_parts,
    )
