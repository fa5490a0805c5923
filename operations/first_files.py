"""A person's first two files: a cluster file for some GPUs, and a run file that works as it is."""

from collections.abc import Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from config.catalogue.instance_types import catalogue, is_instance_type
from config.cluster.cluster_file import Cluster, Setup, Software
from config.errors import InputError
from config.loading import templates
from config.loading.load import load_run
from config.run.requirements import Requires
from config.yaml.hints import names_hint
from engine.plan import proposal as engine_proposal
from operations.chosen_target import ChosenTarget
from operations.proposal import Proposal


def write_new_files(texts: Mapping[Path, str], reason: str, hint: str) -> None:
    """Write each text into its file. InputError, and nothing is written, if one of them exists.

    `reason` says why the command overwrites nothing, `hint` what to do then.
    """
    for path in texts:
        if path.exists() or path.is_symlink():
            raise InputError(f"{path} exists, and {reason}", hint)
    for path, text in texts.items():
        try:
            with path.open("x", encoding="utf-8") as new:
                new.write(text)
        except OSError as error:
            message = f"{path} cannot be written: {error.strerror}"
            raise InputError(message, "name a file in a folder of yours") from error


JOBS = ("nccl-tests", "torchrun", "mpi", "ray", "deepspeed", "hello")
"""The templates that a first run file can be, the most frequent first. The others need frameworks
that no single command installs (Horovod), or that have dropped what they use (TensorFlow)."""

_PIP = "TMPDIR=/var/tmp pip3 install --break-system-packages {}"
"""Memory holds /tmp on some images, which is too small for PyTorch's 5 GB."""
_NEEDS: Mapping[str, Mapping[str, Any]] = {
    "torchrun": {"packages": ("python3-pip",), "commands": (_PIP.format("torch numpy"),)},
    "mpi": {"packages": ("python3-mpi4py",)},
    "ray": {"packages": ("python3-pip",), "commands": (_PIP.format("ray"),)},
    "deepspeed": {
        "packages": ("python3-pip", "pdsh"),
        "commands": (_PIP.format("torch numpy"), _PIP.format("deepspeed")),
    },
}
"""Packages and commands of the set-up that install what a job needs and the images do not have."""

CLUSTER_FILE, RUN_FILE = "cluster.yaml", "run.yaml"


@dataclass(frozen=True)
class FirstFiles:
    """The cluster for a first run, and the text of the run's file; empty for a file that exists."""

    cluster: Proposal
    run: str = ""


def gpu_models() -> tuple[str, ...]:
    """Return the GPUs that gpuctl knows, sorted by name."""
    return tuple(sorted({entry.gpu.model for entry in catalogue().values() if entry.gpu.count}))


def first_files(chosen: ChosenTarget, job: str, gpu: str) -> FirstFiles:
    """Return a cluster with `gpu` and a run file for `job`, one of JOBS.

    `gpu` is a GPU's model (H100) or an instance type (p5.48xlarge); of all types with that GPU the
    cheapest is taken. Raises InputError for an unknown job or GPU.
    """
    if job not in JOBS:
        raise InputError(f"there is no first run '{job}'", names_hint(job, list(JOBS)))
    file = templates.own_template(job)
    run = load_run(file).model_copy(update={"requires": _requires(gpu)})
    proposed = engine_proposal.propose(run, chosen.region)
    proposed = replace(proposed, cluster=_with_needs(proposed.cluster, job), warnings=())
    return FirstFiles(proposed, file.read_text(encoding="utf-8"))


def write_files(folder: Path, texts: Mapping[str, str]) -> tuple[Path, ...]:
    """Write the files into the folder and return their paths; InputError if one exists already."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        reason = f"{folder} cannot be made: {error.strerror}"
        raise InputError(reason, "name a folder of yours") from error
    paths = {folder / name: text for name, text in texts.items()}
    hint = "name another folder: `gpuctl init FOLDER`"
    write_new_files(paths, "init overwrites nothing", hint)
    return tuple(paths)


def _with_needs(cluster: Cluster, job: str) -> Cluster:
    """Return the cluster with the set-up that installs what the job needs."""
    needs = _NEEDS.get(job, {})
    update: dict[str, Any] = {}
    if "packages" in needs:
        update["software"] = Software(packages=needs["packages"])
    if "commands" in needs:
        update["setup"] = Setup(commands=needs["commands"])
    return cluster.model_copy(update=update)


def _requires(gpu: str) -> Requires:
    if is_instance_type(gpu):
        return Requires(instance_types=(gpu,))
    models = {model.lower(): model for model in gpu_models()}
    if gpu.lower() not in models:
        hint = names_hint(gpu, sorted(models.values()))
        raise InputError(f"no instance type has the GPU '{gpu}'", hint)
    return Requires(gpu=(models[gpu.lower()],))
