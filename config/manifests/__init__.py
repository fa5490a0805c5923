"""Kubernetes' manifests of distributed jobs as run files: people have them, and they run as is.

A manifest becomes the data of a run file, which then goes the way of any other; so every rule and
every mode holds for it. Its values keep their place in the manifest.
"""

from collections.abc import Callable, Mapping
from typing import Any

from config.diagnostic import Diagnostic
from config.manifests.converted import document_with
from config.manifests.manifest import Manifest
from config.manifests.mpijob import mpijob
from config.manifests.trainjob import trainjob
from config.manifests.volcano import volcano_job
from config.yaml.hints import spoken
from config.yaml.marked_yaml import Document

MANIFESTS: Mapping[tuple[str, str], Callable[[Manifest], dict[str, Any]]] = {
    ("kubeflow.org/v2beta1", "MPIJob"): mpijob,
    ("batch.volcano.sh/v1alpha1", "Job"): volcano_job,
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): trainjob,
}
"""What makes the run file of each, by `apiVersion` and `kind`."""


def run_file(document: Document) -> tuple[Document | None, list[Diagnostic]]:
    """The manifest as a run file, or None where there is none; and everything there is to say."""
    manifest = Manifest(document)
    version, kind = manifest.get(("apiVersion",)), manifest.get(("kind",))
    known = isinstance(version, str) and isinstance(kind, str)
    convert = MANIFESTS.get((version, kind)) if known else None
    data: dict[str, Any] = {}
    if convert is None:
        manifest.complain("E224", _unknown(version, kind), _allowed(), ("apiVersion",))
    else:
        manifest.ignore((), {"apiVersion", "kind", "metadata", "spec", "status"})
        data = convert(manifest)
    diagnostics = [document.located(fault) for fault in manifest.faults]
    if manifest.is_refused:
        return None, diagnostics
    return document_with(data, document), diagnostics


def _unknown(version: Any, kind: Any) -> str:
    return f"no manifest that gpuctl runs: apiVersion is {spoken(version)}, kind is {spoken(kind)}"


def _allowed() -> str:
    names = [f"{kind} of {version}" for version, kind in MANIFESTS]
    return f"it runs {', '.join(names[:-1])} and {names[-1]}"
