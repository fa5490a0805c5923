"""TrainJob of Kubeflow Trainer, trainer.kubeflow.org/v1alpha1, with the runtimes that it includes.

manifests/base/runtimes of kubeflow/trainer: torch_distributed.yaml@0c78efb0,
deepspeed_distributed.yaml@0ba4b647, pretraining/mpi_distributed.yaml@0f9a7041; its plugins
pkg/runtime/framework/plugins/{torch,mpi}@8c0f5059 (2026-08-21).
"""

from collections.abc import Collection
from dataclasses import dataclass, replace
from typing import Any

from config.manifests.container import Container, container_at, require_command
from config.manifests.converted import Placed
from config.manifests.manifest import Manifest
from config.manifests.mpi_run import MpiJob, hostfile_commands, mpi_run, operator_env
from config.yaml.hints import choice_hint, describe_value


@dataclass(frozen=True)
class Runtime:
    """A ClusterTrainingRuntime, as Kubeflow delivers it."""

    nodes: int
    image: str
    is_mpi: bool = False
    words: tuple[str, ...] = ()


RUNTIMES = {
    "torch-distributed": Runtime(1, "pytorch/pytorch:2.7.1-cuda12.6-cudnn9-runtime"),
    "deepspeed-distributed": Runtime(1, "ghcr.io/kubeflow/trainer/deepspeed-runtime", is_mpi=True),
    "mpi-distributed": Runtime(
        2, "mpioperator/mpi-pi:openmpi", is_mpi=True, words=("mpirun", "/home/mpiuser/pi")
    ),
}

_RUNTIME = ("spec", "runtimeRef", "name")
_TRAINER = ("spec", "trainer")
_NODES = (*_TRAINER, "numNodes")
_PROCESSES = (*_TRAINER, "numProcPerNode")
_KNOWN = {
    *("runtimeRef", "trainer", "activeDeadlineSeconds", "labels", "annotations", "managedBy"),
    *("suspend", "initializer", "datasetConfig", "modelConfig"),
}
_TRAINER_KNOWN = {"image", "command", "args", "env", "numNodes", "numProcPerNode"}
_MPI_KNOWN = {*_TRAINER_KNOWN, "resourcesPerNode"}  # it sets the number of ranks

_PET = ("NNODES", "NPROC_PER_NODE", "NODE_RANK", "MASTER_ADDR", "MASTER_PORT")
_PET_NAMES = tuple(f"PET_{name}" for name in _PET)
_OPEN_MPI_NAMES = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)


def trainjob(manifest: Manifest) -> dict[str, Any]:
    """Return the run file of a TrainJob."""
    manifest.warn_unknown(("spec",), _KNOWN)
    for key in ("initializer", "datasetConfig", "modelConfig"):
        if manifest.get(("spec", key)) is not None:
            message = f"'spec.{key}' cannot be carried out: nothing runs before the job"
            hint = "bring data and models onto the nodes (`setup.commands` of the cluster file)"
            manifest.complain("E225", message, hint, ("spec", key), on_key=True)
    runtime = _runtime(manifest)
    manifest.warn_unknown(_TRAINER, _MPI_KNOWN if runtime.is_mpi else _TRAINER_KNOWN)
    nodes = manifest.whole(_NODES, default=runtime.nodes)
    trainer = _trainer(manifest, runtime)
    _no_reserved(manifest, trainer, _OPEN_MPI_NAMES if runtime.is_mpi else _PET_NAMES)
    run = (_mpi if runtime.is_mpi else _torch)(manifest, trainer, Placed(nodes, _NODES))
    return run | manifest.deadline(("spec", "activeDeadlineSeconds"))


def _runtime(manifest: Manifest) -> Runtime:
    """Return the job's runtime; for an unknown name report it and return any runtime."""
    manifest.require(_RUNTIME)
    name = manifest.text(_RUNTIME)
    if name and name not in RUNTIMES:
        actual = f"'spec.runtimeRef.name' is {describe_value(name)}"
        message = f"{actual}, which is no runtime of Kubeflow's own"
        manifest.complain("E201", message, choice_hint(name, tuple(RUNTIMES)), _RUNTIME)
    return RUNTIMES.get(name, RUNTIMES["torch-distributed"])


def _trainer(manifest: Manifest, runtime: Runtime) -> Container:
    own = container_at(manifest, _TRAINER)
    image = own.image or Placed(runtime.image, _RUNTIME)
    return replace(own, image=image, words=own.words or runtime.words)


def _no_reserved(manifest: Manifest, trainer: Container, reserved: Collection[str]) -> None:
    """Report variables that Trainer sets; Trainer refuses them too, without a line number."""
    for name in reserved:
        if name in trainer.env:
            message = f"'{name}' cannot be set in 'spec.trainer.env': Trainer sets it"
            hint = "remove it, or choose another name"
            manifest.complain("E221", message, hint, trainer.env[name].at)


def _torch(manifest: Manifest, trainer: Container, nodes: Placed) -> dict[str, Any]:
    """Return the command for every node, with torchrun's variables instead of its options."""
    require_command(manifest, trainer)
    processes = manifest.get(_PROCESSES)
    if processes not in (None, "auto", "cpu", "gpu"):
        processes = manifest.whole(_PROCESSES, default=1)
    export = (
        f'export PET_NNODES="$GPUCTL_NODES_NUM" PET_NPROC_PER_NODE={processes or "auto"}'
        ' PET_NODE_RANK="$GPUCTL_NODE_RANK" PET_MASTER_ADDR="$GPUCTL_MASTER_NODE_IP"'
        " PET_MASTER_PORT=29500"
    )
    return {
        "type": "task",
        "name": manifest.name(),
        "nodes": nodes,
        "image": trainer.image,
        "env": trainer.env,
        "commands": Placed([export, *trainer.commands(_PET_NAMES)], trainer.at),
    }


def _mpi(manifest: Manifest, trainer: Container, nodes: Placed) -> dict[str, Any]:
    """Return the run of an MPI job. Every node has the trainer's variables, for its ranks."""
    slots = manifest.whole(_PROCESSES, default=_gpus(manifest))
    job = MpiJob(
        trainer,
        None,
        nodes,
        launcher_env=operator_env("OpenMPI", slots, nodes.value),
        worker_env=trainer.env,
        set_up=hostfile_commands("OpenMPI", slots),
    )
    return mpi_run(manifest, job)


def _gpus(manifest: Manifest) -> int:
    """Return the GPUs that the job requests per node, the default of its processes; at least 1."""
    for kind in ("limits", "requests"):
        count = manifest.get((*_TRAINER, "resourcesPerNode", kind, "nvidia.com/gpu"))
        if str(count).isdecimal():
            return max(1, int(str(count)))
    return 1
