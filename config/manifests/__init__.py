"""Kubernetes' manifests of distributed jobs, read as run files, so that people run them unchanged.

A manifest becomes the data of a run file and is then checked and run like any other run file. Its
values keep their position in the manifest.
"""

from collections.abc import Callable, Mapping
from typing import Any

from config.diagnostic import Diagnostic
from config.manifests.converted import document_with
from config.manifests.manifest import Manifest
from config.manifests.mpijob import mpijob
from config.manifests.trainjob import trainjob
from config.manifests.volcano import volcano_job
from config.yaml.hints import describe_value
from config.yaml.marked_yaml import Document

MANIFESTS: Mapping[tuple[str, str], Callable[[Manifest], dict[str, Any]]] = {
    ("kubeflow.org/v2beta1", "MPIJob"): mpijob,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano_job,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): trainjob,
}
"""The function that makes the run file of each, by `apiVersion` and `kind`."""


def run_file(document: Document) -> tuple[Document | None, list[Diagnostic]]:
    """Return the manifest as a run file, or None if it cannot be one, and all diagnostics."""
    manifest = Manifest(document)
    version, kind = manifest.get(("apiVersion",)), manifest.get(("kind",))
    known = isinstance(version, str) and isinstance(kind, str)
    convert = MANIFESTS.get((version, kind)) if known else None
    data: dict[str, Any] = {}
    if convert is None:
        manifest.complain("E224", _unknown(version, kind), _allowed(), ("apiVersion",))
    else:
        manifest.warn_unknown((), {"apiVersion", "kind", "metadata", "spec", "status"})
        data = convert(manifest)
    diagnostics = [document.locate(fault) for fault in manifest.faults]
    if manifest.is_refused:
        return None, diagnostics
    return document_with(data, document), diagnostics


def _unknown(version: Any, kind: Any) -> str:
    actual = f"apiVersion is {describe_value(version)}, kind is {describe_value(kind)}"
    return f"no manifest that gpuctl runs: {actual}"


def _allowed() -> str:
    names = [f"{kind} of {version}" for version, kind in MANIFESTS]
    return f"it runs {', '.join(names[:-1])} and {names[-1]}"
