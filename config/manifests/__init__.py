"""Kubernetes' manifests of distributed jobs, read as run files, so that people run them unchanged.

A manifest becomes the data of a run file and is then checked and run like any other run file. Its
values keep their position in the manifest.
"""

from collections.abc import Callable, Mapping
from typing import Any

from config.diagnostic import Diagnostic
from config.manifests.converted import document_with
from config.manifests.given import Given
from config.manifests.kinds import (
    JOBS,
    allowed_kinds,
    is_runtime,
    kind_of_manifest,
    runtime_alone,
)
from config.manifests.manifest import Manifest
from config.manifests.mpijob import mpijob
from config.manifests.placeholders import unused_values
from config.manifests.reading import read_manifest
from config.manifests.trainjob import trainjob
from config.manifests.volcano import volcano_job
from config.mistakes import Mistake
from config.yaml.hints import describe_value
from config.yaml.marked_yaml import Document

_CONVERTERS: Mapping[str, Callable[[Manifest], dict[str, Any]]] = {
    "mpijob": mpijob,
    "volcano-job": volcano_job,
    "trainjob": trainjob,
}
"""The function that makes the run file, by the name of the kind's schema."""


def run_file(written: Document, given: Given) -> tuple[Document | None, list[Diagnostic]]:
    """Return the manifest as a run file, or None if it cannot be one, and all diagnostics."""
    schema = JOBS.get(kind_of_manifest(written.data))
    if schema is None:
        return None, [written.locate(_unknown(written.data))]
    data, manifest = read_manifest(written, given, schema, _CONVERTERS[schema])
    diagnostics = manifest.diagnostics + unused_values(given, manifest.placeholders)
    if any(one.severity == "error" for one in diagnostics):
        return None, diagnostics
    return document_with(data, manifest.document), diagnostics


def _unknown(data: Mapping[str, Any]) -> Mistake:
    if is_runtime(data):
        return Mistake("E224", *runtime_alone(kind_of_manifest(data)[1]), ("kind",))
    version, kind = (describe_value(data.get(key)) for key in ("apiVersion", "kind"))
    message = f"no manifest that gpuctl runs: apiVersion is {version}, kind is {kind}"
    return Mistake("E224", message, allowed_kinds(), ("apiVersion",))
