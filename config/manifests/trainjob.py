"""TrainJob of Kubeflow Trainer, trainer.kubeflow.org/v1alpha1.

What a runtime's framework gives to the job: pkg/runtime/framework/plugins/{torch,mpi,jax,xgboost}
of kubeflow/trainer@8c0f5059 (2026-08-21).
"""

from collections.abc import Collection
from dataclasses import replace
from typing import Any

from config.manifests.container import Container, container_at, require_command
from config.manifests.converted import Placed
from config.manifests.manifest import Manifest
from config.manifests.mpi_run import MpiJob, hostfile_commands, mpi_run, operator_env
from config.manifests.runtimes import Framework, Runtime, find_runtime

_TRAINER = ("spec", "trainer")
_NODES = (*_TRAINER, "numNodes")
_PROCESSES = (*_TRAINER, "numProcPerNode")
_KNOWN = {
    *("runtimeRef", "trainer", "activeDeadlineSeconds", "labels", "annotations", "managedBy"),
    *("suspend", "initializer", "datasetConfig", "modelConfig"),
}
_TRAINER_KNOWN = {"image", "command", "args", "env", "numNodes", "numProcPerNode"}
_MPI_KNOWN = {*_TRAINER_KNOWN, "resourcesPerNode"}  # it sets the number of ranks

_PORT = 29500
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


def trainjob(manifest: Manifest) -> dict[str, Any]:
    """Return the run file of a TrainJob."""
    manifest.warn_unknown(("spec",), _KNOWN)
    for key in ("initializer", "datasetConfig", "modelConfig"):
        if manifest.get(("spec", key)) is not None:
            message = f"'spec.{key}' cannot be carried out: nothing runs before the job"
            hint = "bring data and models onto the nodes (`setup.commands` of the cluster file)"
            manifest.complain("E225", message, hint, ("spec", key), on_key=True)
    runtime = find_runtime(manifest)
    is_mpi = runtime.framework == "mpi"
    manifest.warn_unknown(_TRAINER, _MPI_KNOWN if is_mpi else _TRAINER_KNOWN)
    nodes = Placed(manifest.whole(_NODES, default=runtime.nodes), _NODES)
    trainer = _trainer(manifest, runtime)
    _no_reserved(manifest, trainer, _OPEN_MPI_NAMES if is_mpi else _EXPORTS[runtime.framework])
    run = (_mpi if is_mpi else _on_every_node)(manifest, runtime, trainer, nodes)
    return run | manifest.deadline(("spec", "activeDeadlineSeconds"))


def _trainer(manifest: Manifest, runtime: Runtime) -> Container:
    """Return the runtime's container with what the job overrides."""
    own, base = container_at(manifest, _TRAINER), runtime.container
    return replace(
        own,
        image=own.image or base.image,
        command=own.command or base.command,
        args=own.args or base.args,
        env=base.env | own.env,
        folder=base.folder,
    )


def _no_reserved(manifest: Manifest, trainer: Container, reserved: Collection[str]) -> None:
    """Report variables that Trainer sets; Trainer refuses them too, without a line number."""
    for name in reserved:
        if name in trainer.env:
            message = f"'{name}' cannot be set in 'spec.trainer.env': Trainer sets it"
            hint = "remove it, or choose another name"
            manifest.complain("E221", message, hint, trainer.env[name].at)


def _on_every_node(
    manifest: Manifest, runtime: Runtime, trainer: Container, nodes: Placed
) -> dict[str, Any]:
    """Return the command for every node, with the framework's variables."""
    require_command(manifest, trainer)
    processes = manifest.get(_PROCESSES)
    if processes not in (None, "auto", "cpu", "gpu"):
        processes = manifest.whole(_PROCESSES, default=1)
    given = {"processes": processes or runtime.processes or "auto", "gpus": _gpus(manifest)}
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


def _mpi(manifest: Manifest, runtime: Runtime, trainer: Container, nodes: Placed) -> dict[str, Any]:
    """Return the run of an MPI job. Every node has the trainer's variables, for its ranks."""
    default = _gpus(manifest)
    if default == 1 and type(runtime.processes) is int:
        default = runtime.processes
    slots = manifest.whole(_PROCESSES, default)
    job = MpiJob(
        trainer,
        None,
        nodes,
        launcher_env=operator_env(runtime.implementation, slots, nodes.value),
        worker_env=trainer.env,
        set_up=hostfile_commands(runtime.implementation, slots),
    )
    return mpi_run(manifest, job)


def _gpus(manifest: Manifest) -> int:
    """Return the GPUs that the job requests per node, the default of its processes; at least 1."""
    for kind in ("limits", "requests"):
        count = manifest.get((*_TRAINER, "resourcesPerNode", kind, "nvidia.com/gpu"))
        if str(count).isdecimal():
            return max(1, int(str(count)))
    return 1
