"""A file with several documents: the job among them, and what else is there.

Which Kubernetes manifests are jobs, and which only a part of one, the formats say.
"""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from config.diagnostic import Diagnostic
from config.loading.formats import ManifestKind, formats
from config.mistakes import Mistake
from config.yaml.hints import describe_value, quote
from config.yaml.marked_yaml import Document, read_documents, second_document


def is_manifest(document: Document) -> bool:
    """Return whether the document is a manifest of Kubernetes, known or not."""
    return isinstance(document.data, dict) and "apiVersion" in document.data


def kind_of_manifest(data: Any) -> ManifestKind:
    """Return `apiVersion` and `kind`; empty texts where they are no text."""
    values = (data.get(key) if isinstance(data, dict) else None for key in ("apiVersion", "kind"))
    version, kind = (value if isinstance(value, str) else "" for value in values)
    return version, kind


def unknown_manifest(document: Document) -> Diagnostic:
    """Return the error about a manifest that no format reads."""
    version, kind = (describe_value(document.data.get(key)) for key in ("apiVersion", "kind"))
    message = f"no manifest that gpuctl runs: apiVersion is {version}, kind is {kind}"
    return document.locate(Mistake("E224", message, _allowed(), ("apiVersion",)))


def read_job(path: Path) -> tuple[Document | None, list[Diagnostic]]:
    """Return the file's document, of several manifests the job, and all diagnostics.

    The job has the other documents in `beside`. Raises InputError for a file that cannot be read.
    """
    composers = [form.compose for form in formats()]
    documents, diagnostics = read_documents(path, composers)
    if len(documents) < 2:
        return (documents[0] if documents else None), diagnostics
    if not all(is_manifest(document) for document in documents):
        return None, [*diagnostics, second_document(documents[1])]
    jobs = [document for document in documents if kind_of_manifest(document.data) in _jobs()]
    if len(jobs) != 1:
        first = jobs[1] if jobs else documents[0]
        return None, [*diagnostics, _not_one_job(first, jobs, documents)]
    others = tuple(document for document in documents if document is not jobs[0])
    ignored = [other for other in others if kind_of_manifest(other.data) not in _parts()]
    if ignored:
        diagnostics.append(_ignored(ignored))
    return replace(jobs[0], beside=others), diagnostics


def _jobs() -> list[ManifestKind]:
    return [kind for form in formats() for kind in form.jobs]


def _parts() -> Mapping[ManifestKind, tuple[str, str]]:
    return {kind: texts for form in formats() for kind, texts in form.parts.items()}


def _allowed() -> str:
    """Return the kinds that gpuctl runs, for the hint of a message."""
    names = [f"{kind} of {version}" for version, kind in _jobs()]
    return f"it runs {', '.join(names[:-1])} and {names[-1]}"


def _not_one_job(first: Document, jobs: list[Document], documents: list[Document]) -> Diagnostic:
    if jobs:
        names = " and ".join(_name(job.data) for job in jobs[:2])
        message, hint = f"the file has two jobs, {names}", "write one job into a file"
    else:
        parts = _parts()
        if all(kind_of_manifest(document.data) in parts for document in documents):
            message, hint = parts[kind_of_manifest(first.data)]
            return Diagnostic(first.file, *first.begins, "E224", message, hint)
        names = ", ".join(_name(document.data) for document in documents[:4])
        message, hint = f"no job that gpuctl runs among {names}", _allowed()
    return Diagnostic(first.file, *first.begins, "E224", message, hint)


def _ignored(others: list[Document]) -> Diagnostic:
    names = ", ".join(_name(document.data) for document in others[:4])
    more = f" and {len(others) - 4} more" if others[4:] else ""
    message = f"{names}{more}: gpuctl does not create it, it runs the job alone"
    hint = "see that the job does not need it"
    return Diagnostic(others[0].file, *others[0].begins, "W204", message, hint)


def _name(data: Any) -> str:
    """Return a manifest's kind and name: `ConfigMap 'settings'`."""
    metadata = data.get("metadata")
    name = metadata.get("name") if isinstance(metadata, dict) else None
    kind = str(data.get("kind") or "a document without kind")
    return f"{kind[:40]} {quote(name)}" if isinstance(name, str) else kind[:40]
