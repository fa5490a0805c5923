"""Frameworks and programs that jobs use, and that the images of cluster files do not have.

Sources, read 2026-11-28: the release notes of AWS's Deep Learning Base AMIs name driver, CUDA, EFA
and the system's Python, and no framework
(docs.amazonaws.cn/dlami, aws-deep-learning-ami-gpubasesinglecuda-ul2204-2026-01-02); those with
PyTorch are other AMIs, with `framework_version` and a Python in /opt/pytorch
(aws-deep-learning-ami-gpupt29oss-ul2404-2026-01-08).
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass

from config.cluster.cluster_file import Cluster


@dataclass(frozen=True)
class JobSoftware:
    """A framework or tool: its title, the Python module `key`, and its programs.

    `brings` are keys of what its installation brings with it. Without `is_module` the key is the
    name alone.
    """

    title: str
    programs: tuple[str, ...] = ()
    brings: tuple[str, ...] = ()
    is_module: bool = True


JOB_SOFTWARE: Mapping[str, JobSoftware] = {
    "torch": JobSoftware("PyTorch", ("torchrun",)),
    "deepspeed": JobSoftware("DeepSpeed", ("deepspeed",), ("torch",)),
    "accelerate": JobSoftware("Accelerate", ("accelerate",), ("torch",)),
    "transformers": JobSoftware("Transformers"),
    "vllm": JobSoftware("vLLM", ("vllm",), ("torch", "transformers")),
    "horovod": JobSoftware("Horovod", ("horovodrun",)),
    "ray": JobSoftware("Ray", ("ray",)),
    "tensorflow": JobSoftware("TensorFlow"),
    "jax": JobSoftware("JAX"),
    "mpi4py": JobSoftware("mpi4py"),
    "conda": JobSoftware("conda", ("conda", "mamba"), is_module=False),
    "slurm": JobSoftware("Slurm", ("srun", "sbatch"), is_module=False),
}

INSTALLED = "installed"
"""The version of software that names none."""

_MAY_INSTALL_ANYTHING = re.compile(
    r"(^|\s)-r\b|requirements|environment|\.(sh|py|ya?ml|toml|whl|deb)\b|https?:|\bs3:"
    r"|\b(bash|sh|source|git|make|ansible\S*|docker|podman)\s"
)
"""Set-up commands that fetch or run something of which only its author knows what it installs."""


def planned_software(cluster: Cluster) -> dict[str, str]:
    """Return the software that the cluster's nodes will have, as far as jobs ask for it.

    It is empty if that is not known: for an image of the user's own, and if `setup.commands` run
    scripts or install lists of packages.
    """
    text = "\n".join((*cluster.software.packages, *cluster.setup.commands))
    if cluster.image.startswith("ami-") or _MAY_INSTALL_ANYTHING.search(text):
        return {}
    keys = set(re.findall(r"[A-Za-z0-9]+", text)) & JOB_SOFTWARE.keys()
    keys |= {brought for key in keys for brought in JOB_SOFTWARE[key].brings}
    openmpi = str(cluster.software.openmpi or 4)
    return {"openmpi": openmpi, **dict.fromkeys(sorted(keys), INSTALLED)}
