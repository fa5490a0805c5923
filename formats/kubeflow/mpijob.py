"""MPIJob of Kubeflow's mpi-operator, kubeflow.org/v2beta1.

pkg/apis/kubeflow/v2beta1 and pkg/controller/mpi_job_controller.go of mpi-operator@caa3c47f
(2026-07-02): defaults, hostfile and variables.
"""

from typing import Any

from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubernetes.container import Container
from formats.kubernetes.mpi_run import (
    IMPLEMENTATIONS,
    MpiJob,
    hostfile_commands,
    mpi_run,
    operator_env,
)
from formats.kubernetes.pod import container_of_pod

_LAUNCHER = ("spec", "mpiReplicaSpecs", "Launcher")
_WORKER = ("spec", "mpiReplicaSpecs", "Worker")
_KNOWN = {
    "slotsPerWorker",
    "runLauncherAsWorker",
    "mpiImplementation",
    "mpiReplicaSpecs",
    "runPolicy",
    # gpuctl needs no keys, and the launcher always waits until the workers are ready.
    "sshAuthMountPath",
    "launcherCreationPolicy",
    "cleanPodPolicy",
}
_POLICY_KNOWN = {
    # A run starts whole or not at all, and leaves nothing behind.
    "activeDeadlineSeconds",
    "backoffLimit",
    "cleanPodPolicy",
    "managedBy",
    "schedulingPolicy",
    "suspend",
    "ttlSecondsAfterFinished",
}


def mpijob(manifest: ForeignFile) -> dict[str, Any]:
    """Return the run file of an MPIJob."""
    policy = ("spec", "runPolicy")
    manifest.warn_unknown(("spec",), _KNOWN)
    manifest.warn_unknown(policy, _POLICY_KNOWN)
    manifest.warn_retries((*policy, "backoffLimit"))
    slots = manifest.whole(("spec", "slotsPerWorker"), default=1)
    implementation = manifest.choice(("spec", "mpiImplementation"), IMPLEMENTATIONS)
    is_worker = manifest.flag(("spec", "runLauncherAsWorker"))
    launcher, worker = _launcher(manifest), _worker(manifest)
    workers = manifest.whole((*_WORKER, "replicas"), default=1) if worker else 0
    nodes = max(1, workers + is_worker)
    job = MpiJob(
        launcher,
        worker,
        Placed(nodes, (*_WORKER, "replicas")),
        is_worker,
        {"K_MPI_JOB_ROLE": "launcher", **operator_env(implementation, slots, nodes)},
        {"K_MPI_JOB_ROLE": "worker"},
        hostfile_commands(implementation, slots),
        slots=slots,
    )
    return mpi_run(manifest, job) | manifest.deadline((*policy, "activeDeadlineSeconds"))


def _launcher(manifest: ForeignFile) -> Container:
    manifest.require(_LAUNCHER)
    manifest.warn_unknown(_LAUNCHER, {"replicas", "restartPolicy", "template"})
    if manifest.whole((*_LAUNCHER, "replicas"), default=1) != 1:
        at = (*_LAUNCHER, "replicas")
        message = f"'spec.mpiReplicaSpecs.Launcher.replicas' is {manifest.get(at)}"
        manifest.complain("E202", message, "write 1: a job has one launcher", at)
    return container_of_pod(manifest, (*_LAUNCHER, "template"))


def _worker(manifest: ForeignFile) -> Container | None:
    if manifest.get(_WORKER) is None:
        return None
    manifest.require((*_WORKER, "replicas"))
    manifest.warn_unknown(_WORKER, {"replicas", "restartPolicy", "template"})
    worker = container_of_pod(manifest, (*_WORKER, "template"))
    if not worker.only_waits:
        why = "on workers only what mpirun starts is run"
        manifest.warn_ignored((*worker.at, "command"), why)
    return worker
