"""The kinds of manifests that gpuctl reads, by `apiVersion` and `kind`."""

from typing import Any

JOBS = {
    ("kubeflow.org/v2beta1", "MPIJob"): "mpijob",
    ("batch.volcano.sh/v1alpha1", "Job"): "volcano-job",
    ("trainer.kubeflow.org/v1alpha1", "TrainJob"): "trainjob",
}
"""The kinds that describe a run, and the name of each one's schema."""

RUNTIMES = (
    ("trainer.kubeflow.org/v1alpha1", "ClusterTrainingRuntime"),
    ("trainer.kubeflow.org/v1alpha1", "TrainingRuntime"),
)
"""The kinds that a TrainJob uses."""


def kind_of_manifest(data: Any) -> tuple[str, str]:
    """Return `apiVersion` and `kind`; empty texts where they are no text."""
    found = (data.get(key) if isinstance(data, dict) else None for key in ("apiVersion", "kind"))
    version, kind = (value if isinstance(value, str) else "" for value in found)
    return version, kind


def is_runtime(data: Any) -> bool:
    """Return whether it is a runtime, which a TrainJob uses."""
    return kind_of_manifest(data) in RUNTIMES


def runtime_alone(kind: str) -> tuple[str, str]:
    """Return message and hint for a file that has a runtime and no job."""
    return (
        f"a {kind} is no job: it says how the TrainJobs run that name it",
        "run a TrainJob of it: `gpuctl run trainjob.yaml --runtimes FOLDER`, with this file in"
        " FOLDER, or write both into one file",
    )


def allowed_kinds() -> str:
    """Return the kinds that gpuctl runs, for the hint of a message."""
    names = [f"{kind} of {version}" for version, kind in JOBS]
    return f"it runs {', '.join(names[:-1])} and {names[-1]}"
