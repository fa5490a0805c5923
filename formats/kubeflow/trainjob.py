"""TrainJob of Kubeflow Trainer, trainer.kubeflow.org/v1alpha1.

What a runtime's framework gives to the job: pkg/runtime/framework/plugins/{torch,mpi,jax,xgboost}
of kubeflow/trainer@8c0f5059 (2026-08-21).
"""

from collections.abc import Collection, Mapping
from dataclasses import replace
from typing import Any

from config.mistakes import path_text
from config.quantities import counted
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubeflow.runtimes import Framework, Runtime, find_runtime
from formats.kubernetes.container import Container, container_at, require_command
from formats.kubernetes.mpi_run import MpiJob, hostfile_commands, mpi_run, operator_env
from formats.kubernetes.pod import check_init_containers
from formats.kubernetes.requirements import cpus_per_node, gpus_per_node

_TRAINER = ("spec", "trainer")
_NODES = (*_TRAINER, "numNodes")
_PROCESSES = (*_TRAINER, "numProcPerNode")
_KNOWN = {
    "runtimeRef",
    "trainer",
    "activeDeadlineSeconds",
    "labels",
    "annotations",
    "managedBy",
    "suspend",
    "initializer",
    "datasetConfig",
    "modelConfig",
}
_TRAINER_KNOWN = {"image", "command", "args", "env", "numNodes", "numProcPerNode"}
_COUNTED = ("mpi", "torch", "xgboost")  # for which `resourcesPerNode` sets the number of ranks

_PORT = 29500
_TORCHRUN = ("torchrun", "torch.distributed", "tune", "PET_NPROC")
_EXPORTS: dict[Framework, dict[str, str]] = {
    "torch": {
        "PET_NNODES": '"$GPUCTL_NODES_NUM"',
        "PET_NPROC_PER_NODE": "{processes}",
        "PET_NODE_RANK": '"$GPUCTL_NODE_RANK"',
        "PET_MASTER_ADDR": '"$GPUCTL_MASTER_NODE_IP"',
        "PET_MASTER_PORT": str(_PORT),
    },
    "jax": {
        "JAX_NUM_PROCESSES": '"$GPUCTL_NODES_NUM"',
        "JAX_PROCESS_ID": '"$GPUCTL_NODE_RANK"',
        "JAX_COORDINATOR_ADDRESS": f'"$GPUCTL_MASTER_NODE_IP:{_PORT}"',
    },
    "xgboost": {
        "DMLC_TRACKER_URI": '"$GPUCTL_MASTER_NODE_IP"',
        "DMLC_TRACKER_PORT": str(_PORT),
        "DMLC_TASK_ID": '"$GPUCTL_NODE_RANK"',
        "DMLC_NUM_WORKER": '"$(({gpus} * GPUCTL_NODES_NUM))"',
    },
    "plain": {"JOB_COMPLETION_INDEX": '"$GPUCTL_NODE_RANK"'},
}
"""The variables of each framework that starts its processes on every node, as bash."""
_OPEN_MPI_NAMES = (
    "OMPI_MCA_orte_default_hostfile",
    "OMPI_MCA_orte_keep_fqdn_hostnames",
    "OMPI_MCA_orte_set_default_slots",
    "OMPI_MCA_plm_rsh_args",
)


def trainjob(manifest: ForeignFile) -> dict[str, Any]:
    """Return the run file of a TrainJob."""
    manifest.warn_unknown(("spec",), _KNOWN)
    for key in ("initializer", "datasetConfig", "modelConfig"):
        if manifest.get(("spec", key)) is not None:
            message = f"'spec.{key}' cannot be carried out: nothing runs before the job"
            hint = "bring data and models onto the nodes (`setup.commands` of the cluster file)"
            manifest.complain("E225", message, hint, ("spec", key), on_key=True)
    runtime = find_runtime(manifest)
    is_mpi = runtime.framework == "mpi"
    counted = {"resourcesPerNode"} if runtime.framework in _COUNTED else set()
    manifest.warn_unknown(_TRAINER, _TRAINER_KNOWN | counted)
    nodes = Placed(manifest.whole(_NODES, default=runtime.nodes), _NODES)
    trainer = _trainer(manifest, runtime)
    _no_reserved(manifest, trainer, _OPEN_MPI_NAMES if is_mpi else _EXPORTS[runtime.framework])
    run = (_mpi if is_mpi else _on_every_node)(manifest, runtime, trainer, nodes)
    return run | manifest.deadline(("spec", "activeDeadlineSeconds"))


def _trainer(manifest: ForeignFile, runtime: Runtime) -> Container:
    """Return the runtime's container with what the job overrides."""
    own, base = container_at(manifest, _TRAINER), runtime.container
    return replace(
        own,
        image=own.image or base.image,
        command=own.command or base.command,
        args=own.args or base.args,
        env=base.env | own.env,
        folder=base.folder,
        init=base.init,
    )


def _no_reserved(manifest: ForeignFile, trainer: Container, reserved: Collection[str]) -> None:
    """Report variables that Trainer sets; Trainer refuses them too, without a line number."""
    for name in reserved:
        if name in trainer.env:
            message = f"'{name}' cannot be set in 'spec.trainer.env': Trainer sets it"
            hint = "remove it, or choose another name"
            manifest.complain("E221", message, hint, trainer.env[name].at)


def _on_every_node(
    manifest: ForeignFile, runtime: Runtime, trainer: Container, nodes: Placed
) -> dict[str, Any]:
    """Return the command for every node, with the framework's variables."""
    require_command(manifest, trainer)
    check_init_containers(manifest, trainer, trainer.image)
    processes = _processes(manifest, runtime, trainer) if runtime.framework == "torch" else 0
    given = {"processes": processes, "gpus": max(1, gpus_per_node(_resources(manifest, runtime)))}
    exported = _EXPORTS[runtime.framework]
    export = " ".join(f"{name}={text.format(**given)}" for name, text in exported.items())
    return {
        "type": "task",
        "name": manifest.name(),
        "nodes": nodes,
        **({"image": trainer.image} if trainer.image else {}),
        "env": trainer.env,
        "commands": Placed([f"export {export}", *trainer.commands(exported)], trainer.at),
    }


def _processes(manifest: ForeignFile, runtime: Runtime, trainer: Container) -> int | str:
    """Return torchrun's processes on a node: by default the GPUs, or else the CPUs, asked for.

    Trainer's own default (EnforceMLPolicy in torch.go) is `auto` with GPUs, and in a pod torchrun
    finds those that were asked for; here it would find all GPUs of the node.
    """
    written = manifest.get(_PROCESSES)
    if written is None:
        written = runtime.processes
    if written not in (None, "auto", "cpu", "gpu"):
        return manifest.whole(_PROCESSES, default=1) if manifest.get(_PROCESSES) else written
    resources = _resources(manifest, runtime)
    gpus, cpus = gpus_per_node(resources), cpus_per_node(resources)
    if written != "cpu" and gpus:
        count, why = gpus, "the GPUs of its resources"
    elif written == "gpu":
        return "gpu"
    else:
        count, why = max(1, cpus), "the CPUs of its resources" if cpus else "it asks for nothing"
    words = " ".join(trainer.words)
    if any(text in words for text in _TORCHRUN) and "nproc" not in words:
        processes = counted(count, "process")
        message = f"'{path_text(_TRAINER)}' starts {processes} per node, as in Kubeflow: {why}"
        hint = "write 'numProcPerNode' for another number of processes"
        manifest.complain("W209", message, hint, _PROCESSES)
    return count


def _mpi(
    manifest: ForeignFile, runtime: Runtime, trainer: Container, nodes: Placed
) -> dict[str, Any]:
    """Return the run of an MPI job. Every node has the trainer's variables, for its ranks."""
    default = runtime.processes if type(runtime.processes) is int else 1
    if default == 1:
        default = max(1, gpus_per_node(_resources(manifest, runtime)))
    slots = manifest.whole(_PROCESSES, default)
    job = MpiJob(
        trainer,
        None,
        nodes,
        launcher_env=operator_env(runtime.implementation, slots, nodes.value),
        worker_env=trainer.env,
        set_up=hostfile_commands(runtime.implementation, slots),
        slots=slots,
    )
    return mpi_run(manifest, job)


def _resources(manifest: ForeignFile, runtime: Runtime) -> Mapping[str, Any]:
    """Return what a node is asked for: by the job, or else by its runtime."""
    at = (*_TRAINER, "resourcesPerNode")
    return runtime.resources if manifest.get(at) is None else manifest.mapping(at)
