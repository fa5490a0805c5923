"""The run file of a job whose own command calls mpirun: a launcher, and workers that it enters.

The launcher shares node 0 with the first worker, unless it is a worker itself: alone it would keep
a GPU node idle. What an operator would have given to it is in its variables and in the commands
before its own; its way to the workers is gpuctl's remote agent, so no sshd and no key is needed.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from config.manifests.container import Container, require_command
from config.manifests.converted import Placed
from config.manifests.manifest import Manifest
from config.run.launchers import HYDRA_AGENT, OPEN_MPI_AGENT, OPEN_MPI_INTERFACES, open_mpi_hosts

IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")

_HOSTFILE = "/etc/mpi/hostfile"

# By the names of both Open MPI 4 and 5, each of which ignores the other's. An operator's users
# are not root and have one network interface; here it is root, and docker0 is alike on every node.
_AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

# The run's folder is known on the node alone, so these are no variables of the run file.
_AGENT = "\n".join(
    (
        'gpuctl_agent="$GPUCTL_RUN_FOLDER/bin/ssh"',
        'export PATH="$GPUCTL_RUN_FOLDER/bin:$PATH"',
        " ".join(("export", *(f'{name}="$gpuctl_agent"' for name in OPEN_MPI_AGENT))),
        *(f'export {kind}=ssh {program}="$gpuctl_agent"' for kind, program in HYDRA_AGENT),
    )
)


@dataclass(frozen=True)
class MpiJob:
    """What a manifest says of an MPI job.

    `nodes` counts all; `is_worker`: the launcher is one of them by itself, and not with a worker.
    `launcher_env` and `worker_env` are an operator's, `set_up` are commands that do what else it
    does for the launcher, and `exported` the variables that these set.
    """

    launcher: Container
    worker: Container | None
    nodes: Placed
    is_worker: bool = False
    launcher_env: Mapping[str, Any] = field(default_factory=dict)
    worker_env: Mapping[str, Any] = field(default_factory=dict)
    set_up: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()


def mpi_run(manifest: Manifest, job: MpiJob) -> dict[str, Any]:
    """The run file: the launcher's command on node 0, once the workers wait."""
    launcher, worker = job.launcher, job.worker
    require_command(manifest, launcher)
    workers = {**(worker.env if worker else {}), **job.worker_env}
    own_interfaces = launcher.mentions("btl_tcp_if_")
    master = {
        **_AS_ROOT,
        **({} if own_interfaces else OPEN_MPI_INTERFACES),
        **launcher.env,
        **job.launcher_env,
    }
    commands = launcher.commands({*job.launcher_env, *job.exported})
    return {
        "type": "task",
        "name": manifest.name(),
        "nodes": job.nodes,
        **_image(manifest, job),
        "startup_order": "workers-first",
        "stop_criteria": "master-done",
        "env": {} if job.is_worker else workers,
        "roles": {
            "master": {"env": master},
            "worker": {"env": workers if job.is_worker else {}, "commands": ["sleep infinity"]},
        },
        "commands": Placed([*job.set_up, _AGENT, *commands], launcher.at),
    }


def hostfile_commands(implementation: str, slots: int) -> tuple[str, ...]:
    """What an operator puts into /etc/mpi: the hostfile in its dialect, and elastic Horovod's list.

    pkg/controller/mpi_job_controller.go of kubeflow/mpi-operator@caa3c47f, 2026-07-02.
    """
    line = f"%s slots={slots}" if implementation == "OpenMPI" else f"%s:{slots}"
    list_hosts = "/etc/mpi/discover_hosts.sh"
    return (
        f"mkdir -p /etc/mpi && printf '{line}\\n' $GPUCTL_NODES_IPS >{_HOSTFILE}",
        f"printf '#!/bin/sh\\n' >{list_hosts} && chmod 755 {list_hosts} &&"
        f" printf 'echo %s\\n' $GPUCTL_NODES_IPS >>{list_hosts}",
    )


def operator_env(implementation: str, slots: int, nodes: int) -> dict[str, str]:
    """What mpi-operator and Trainer set for the launcher; for Open MPI by the names of 5 too.

    The same source; PRRTE's names: kubeflow/trainer#4028, 2026-11-20.
    """
    if implementation == "Intel":
        return {"I_MPI_HYDRA_HOST_FILE": _HOSTFILE, "I_MPI_PERHOST": str(slots)}
    if implementation == "MPICH":
        return {"HYDRA_HOST_FILE": _HOSTFILE}
    return open_mpi_hosts(_HOSTFILE, slots, nodes)


def _image(manifest: Manifest, job: MpiJob) -> dict[str, Placed]:
    """The workers' image, in which the ranks are; the launcher's where they have none."""
    own, others = job.launcher.image, job.worker.image if job.worker else None
    if own and others and own.value != others.value:
        why = f"a run has one image, and ranks run in the workers' ({others.value})"
        manifest.ignored(own.at, why)
    image = others or own
    return {"image": image} if image else {}
