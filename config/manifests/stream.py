"""A file with several documents: the job among them, and what else is there."""

from dataclasses import replace
from pathlib import Path
from typing import Any

from config.diagnostic import Diagnostic
from config.manifests.kinds import (
    JOBS,
    RUNTIMES,
    allowed_kinds,
    is_runtime,
    kind_of_manifest,
    runtime_alone,
)
from config.yaml.hints import quote
from config.yaml.marked_yaml import Document, read_documents, second_document


def read_job(path: Path) -> tuple[Document | None, list[Diagnostic]]:
    """Return the file's document, of several manifests the job, and all diagnostics.

    The job has the other documents in `beside`. Raises InputError for a file that cannot be read.
    """
    documents, diagnostics = read_documents(path)
    if len(documents) < 2:
        return (documents[0] if documents else None), diagnostics
    if not all(_is_manifest(document) for document in documents):
        return None, [*diagnostics, second_document(documents[1])]
    jobs = [one for one in documents if kind_of_manifest(one.data) in JOBS]
    if len(jobs) != 1:
        found = jobs[1] if jobs else documents[0]
        return None, [*diagnostics, _not_one_job(found, jobs, documents)]
    others = tuple(one for one in documents if one is not jobs[0])
    ignored = [one for one in others if kind_of_manifest(one.data) not in RUNTIMES]
    if ignored:
        diagnostics.append(_ignored(ignored))
    return replace(jobs[0], beside=others), diagnostics


def _is_manifest(document: Document) -> bool:
    return isinstance(document.data, dict) and "apiVersion" in document.data


def _not_one_job(found: Document, jobs: list[Document], documents: list[Document]) -> Diagnostic:
    if jobs:
        names = " and ".join(_name(job.data) for job in jobs[:2])
        message, hint = f"the file has two jobs, {names}", "write one job into a file"
    else:
        if all(is_runtime(one.data) for one in documents):
            message, hint = runtime_alone(kind_of_manifest(found.data)[1])
            return Diagnostic(found.file, *found.begins, "E224", message, hint)
        names = ", ".join(_name(one.data) for one in documents[:4])
        message, hint = f"no job that gpuctl runs among {names}", allowed_kinds()
    return Diagnostic(found.file, *found.begins, "E224", message, hint)


def _ignored(others: list[Document]) -> Diagnostic:
    names = ", ".join(_name(one.data) for one in others[:4])
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
