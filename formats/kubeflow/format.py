"""Kubeflow's manifests as a format."""

from pathlib import Path

from formats.kubeflow.mpijob import mpijob
from formats.kubeflow.runtimes import RUNTIMES, job_documents
from formats.kubeflow.trainjob import trainjob
from formats.kubernetes.manifest_format import Job, manifest_format

_SCHEMAS = Path(__file__).parent / "schemas"
_RUN_A_JOB = (
    "run a TrainJob of it: `gpuctl run trainjob.yaml --runtimes FOLDER`, with this file in FOLDER,"
    " or write both into one file"
)

FORMAT = manifest_format(
    {
        ("kubeflow.org/v2beta1", "MPIJob"): Job(_SCHEMAS / "mpijob.json", mpijob),
        ("trainer.kubeflow.org/v1alpha1", "TrainJob"): Job(_SCHEMAS / "trainjob.json", trainjob),
    },
    {
        (version, kind): (
            f"a {kind} is no job: it says how the TrainJobs run that name it",
            _RUN_A_JOB,
        )
        for version, kind in RUNTIMES
    },
    job_documents,
)
