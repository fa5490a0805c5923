"""Volcano's manifests as a format."""

from pathlib import Path

from formats.kubernetes.manifest_format import Job, manifest_format
from formats.volcano.volcano import volcano_job

_SCHEMA = Path(__file__).parent / "schemas" / "volcano-job.json"

FORMAT = manifest_format({("batch.volcano.sh/v1alpha1", "Job"): Job(_SCHEMA, volcano_job)})
