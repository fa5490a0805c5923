"""The run file of a job whose command calls mpirun: a launcher, and workers that it connects to.

The launcher shares node 0 with the first worker, unless it is a worker itself, because alone it
would keep a GPU node idle. Variables, and commands before the launcher's own, replace what an
operator provides. The launcher reaches the workers through gpuctl's remote agent, so it needs
neither sshd nor a key.
"""

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from config.mistakes import path_text
from config.quantities import counted
from config.run.owned_variables import (
    HYDRA_AGENT,
    OPEN_MPI_AGENT,
    OPEN_MPI_INTERFACES,
    open_mpi_hosts,
)
from config.yaml.hints import shorten
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubernetes.container import Container, require_command
from formats.kubernetes.pod import check_init_containers

IMPLEMENTATIONS = ("OpenMPI", "Intel", "MPICH")

_HOSTFILE = "/etc/mpi/hostfile"
_LAUNCHER = r"\b(?:mpirun|mpiexec(?:\.\w+)?|orterun|prterun|horovodrun)\b[^|;&]*?\s"
_RANKS = re.compile(_LAUNCHER + r"(--?n|--?np|-c)[ =]([0-9]{1,6})\b")
_RANKS_ON_NODE = re.compile(
    _LAUNCHER + r"(--?npernode[ =]|-N |--?ppn[ =]|--?perhost[ =]|--?map-by[ =]ppr:)([0-9]{1,6})\b"
)
_NUMBER = re.compile(r"\b([A-Za-z_]\w*)=[\"']?([0-9]{1,6})\b")
_VARIABLE = re.compile(r"\$(?:\(([A-Za-z_]\w*)\)|\{([A-Za-z_]\w*)\}|([A-Za-z_]\w*))")
_OWN_HOSTS = re.compile(
    r"--?(?:oversubscribe|host|H|hostfile|machinefile|hosts)\b|:OVERSUBSCRIBE", re.I
)

# Open MPI 4 and 5 have different names, and each ignores the other's. An operator's users are not
# root and have one network interface; on nodes the user is root, and docker0 has the same address
# on every node.
_AS_ROOT = {
    "OMPI_ALLOW_RUN_AS_ROOT": "1",
    "OMPI_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
    "PRTE_ALLOW_RUN_AS_ROOT": "1",
    "PRTE_ALLOW_RUN_AS_ROOT_CONFIRM": "1",
}

# Only the node knows the run's folder, so these cannot be variables of the run file.
_AGENT = "\n".join(
    (
        'gpuctl_agent="$GPUCTL_RUN_FOLDER/bin/ssh"',
        'export PATH="$GPUCTL_RUN_FOLDER/bin:$PATH"',
        " ".join(("export", *(f'{name}="$gpuctl_agent"' for name in OPEN_MPI_AGENT))),
        *(f'export {kind}=ssh {program}="$gpuctl_agent"' for kind, program in HYDRA_AGENT),
    )
)

# The launcher starts when every worker has written this file, as it would find them in a cluster.
_PREPARED = '"$GPUCTL_RUN_FOLDER/prepared.$GPUCTL_RESTART_COUNT"'
_LONGEST_PREPARATION = "1d"


@dataclass(frozen=True)
class MpiJob:
    """The description of an MPI job, taken from a manifest.

    `nodes` is the number of all nodes. `is_worker`: the launcher is itself a worker and does not
    share its node with one. `slots` is the number of ranks that the hostfile allows on a node, 0 if
    it says nothing. `launcher_env` and `worker_env` are an operator's variables, `set_up`
    are commands that do the rest of its work for the launcher, and `exported` the variables that
    they set.
    """

    launcher: Container
    worker: Container | None
    nodes: Placed
    is_worker: bool = False
    launcher_env: Mapping[str, Any] = field(default_factory=dict)
    worker_env: Mapping[str, Any] = field(default_factory=dict)
    set_up: tuple[str, ...] = ()
    exported: tuple[str, ...] = ()
    slots: int = 0


def mpi_run(manifest: ForeignFile, job: MpiJob) -> dict[str, Any]:
    """Return the run file: the launcher's command on node 0, started when the workers wait."""
    launcher, worker = job.launcher, job.worker
    image = same_image(manifest, launcher, worker)
    require_command(manifest, launcher)
    for container in (launcher, worker) if worker else (launcher,):
        check_init_containers(manifest, container, image)
    # Node 0 prepares what the worker does that it is, unless the launcher is a node by itself.
    as_worker = worker.init_commands() if worker and not job.is_worker else []
    preparing = (worker or launcher).init_commands()
    waiting = [*preparing, f": >{_PREPARED}", "sleep infinity"] if preparing else ["sleep infinity"]
    ready = {"command": f"test -e {_PREPARED}", "timeout": _LONGEST_PREPARATION}
    _warn_too_many_ranks(manifest, job)
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
        **({"image": image} if image else {}),
        "startup_order": "workers-first",
        "stop_criteria": "master-done",
        **({"ready": ready} if preparing else {}),
        "env": {} if job.is_worker else workers,
        "roles": {
            "master": {"env": master},
            "worker": {"env": workers if job.is_worker else {}, "commands": waiting},
        },
        "commands": Placed([*job.set_up, _AGENT, *as_worker, *commands], launcher.at),
    }


def _warn_too_many_ranks(manifest: ForeignFile, job: MpiJob) -> None:
    """Warn of a launcher that asks for more ranks than its workers have slots.

    Open MPI ends with "not enough slots", other launchers start several ranks on one GPU.
    """
    words = _with_numbers(job.launcher)
    room = job.slots * job.nodes.value
    ranks, on_node = _RANKS.search(words), _RANKS_ON_NODE.search(words)
    if not room or _OWN_HOSTS.search(words):
        return
    at = (*job.launcher.at, "command")
    if ranks and int(ranks[2]) > room:
        message = (
            f"'{path_text(at)}' starts {ranks[2]} ranks ({ranks[1]} {ranks[2]}), but the workers"
            f" have {room} slots: {job.nodes.value} x {job.slots}"
        )
        manifest.complain("W211", message, "lower it, or raise the workers' slots or number", at)
    elif on_node and int(on_node[2]) > job.slots:
        message = (
            f"'{path_text(at)}' starts {on_node[2]} ranks on a node ({on_node[1]}{on_node[2]}), but"
            f" a worker has {counted(job.slots, 'slot')}"
        )
        manifest.complain("W211", message, "lower it, or raise the workers' slots", at)


def _with_numbers(launcher: Container) -> str:
    """Return the launcher's words, with the numbers of variables that they or its `env` set."""
    words = " ".join(launcher.words)
    values = {name: str(placed.value) for name, placed in launcher.env.items()}
    values |= dict(_NUMBER.findall(words))
    return _VARIABLE.sub(lambda name: values.get(name[1] or name[2] or name[3], name[0]), words)


def hostfile_commands(implementation: str, slots: int) -> tuple[str, ...]:
    """Return commands that write an operator's /etc/mpi: the hostfile and elastic Horovod's list.

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
    """Return the launcher's variables of mpi-operator and Trainer, also by Open MPI 5's names.

    The same source; PRRTE's names: kubeflow/trainer#4028, 2026-11-20.
    """
    if implementation == "Intel":
        return {"I_MPI_HYDRA_HOST_FILE": _HOSTFILE, "I_MPI_PERHOST": str(slots)}
    if implementation == "MPICH":
        return {"HYDRA_HOST_FILE": _HOSTFILE}
    return open_mpi_hosts(_HOSTFILE, slots, nodes)


def same_image(manifest: ForeignFile, first: Container, worker: Container | None) -> Placed | None:
    """Return the image of the workers, which run the ranks, or else that of the first."""
    own, others = first.image, worker.image if worker else None
    if own and others and own.value != others.value:
        why = f"a run has one image, and ranks run in the workers' ({shorten(others.value)})"
        manifest.warn_ignored(own.at, why)
    return others or own
