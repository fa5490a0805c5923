"""Volcano's Job, batch.volcano.sh/v1alpha1: a master and workers, or one task on every node.

The values that the plugins svc, env and mpi give to a task: pkg/controllers/job/plugins of
volcano-sh/volcano@08812f68 (read 2026-11-20). The plugin `ssh` is not needed.
"""

import re
from dataclasses import dataclass
from typing import Any

from config.mistakes import Path
from config.yaml.hints import describe_value, names_hint
from formats.converted import Placed
from formats.foreign_file import ForeignFile
from formats.kubernetes.container import Container, require_command
from formats.kubernetes.mpi_run import MpiJob, mpi_run, same_image
from formats.kubernetes.pod import check_init_containers, container_of_pod

_TASKS = ("spec", "tasks")
_KNOWN = {
    "tasks",
    "plugins",
    "maxRetry",
    "policies",
    # The cluster has all its nodes before a run starts, and a run leaves nothing behind.
    "minAvailable",
    "minSuccess",
    "schedulerName",
    "queue",
    "ttlSecondsAfterFinished",
}
_TASK_KNOWN = {"name", "replicas", "minAvailable", "template", "policies", "maxRetry", "dependsOn"}
_PLUGINS = ("svc", "ssh", "env", "mpi", "pytorch")
_PYTORCH = ("spec", "plugins", "pytorch")
_RANKS = ("MASTER_ADDR", "MASTER_PORT", "WORLD_SIZE", "RANK")
_INDEX = ("VC_TASK_INDEX", "VK_TASK_INDEX")


def volcano_job(manifest: ForeignFile) -> dict[str, Any]:
    """Return the run file of a Volcano Job."""
    manifest.warn_unknown(("spec",), _KNOWN)
    manifest.warn_retries(("spec", "maxRetry"))
    _policies(manifest, ("spec", "policies"))
    for name in manifest.mapping(("spec", "plugins")):
        if name not in _PLUGINS:
            message = f"plugin {describe_value(name)} cannot be carried out"
            hint = names_hint(name, _PLUGINS)
            manifest.complain("E225", message, hint, ("spec", "plugins", name), on_key=True)
    tasks = [_task(manifest, index) for index in range(len(manifest.entries(_TASKS)))]
    if len(tasks) == 1:
        return _one_task(manifest, tasks[0])
    if len(tasks) != 2:
        message = f"'spec.tasks' has {len(tasks)} tasks"
        hint = "write one, or a master and workers that it enters by mpirun"
        manifest.complain("E225", message, hint, _TASKS)
        return {}
    master, worker = _master_first(manifest, tasks)
    by_mpi = manifest.get(("spec", "plugins", "mpi")) is not None
    if by_mpi or (worker.container.only_waits and manifest.get(_PYTORCH) is None):
        return _mpi(manifest, master, worker)
    return _own_commands(manifest, master, worker)


@dataclass(frozen=True)
class _Task:
    """A task: its name as in files and variables, its number of replicas, and its container."""

    at: Path
    name: str
    replicas: int
    container: Container

    def export(self, hosts: str, number: str) -> str:
        """Return a line of bash that sets plugin svc's file and variables for the task."""
        file, names = f"/etc/volcano/{self.name}.host", self.variables
        return (
            f'printf %s "{hosts}" >{file} &&'
            f" export {names[0]}=\"$(tr '\\n' , <{file})\" {names[1]}={number}"
        )

    @property
    def variables(self) -> tuple[str, str]:
        """Return the names of its variables."""
        return f"VC_{self.name.upper()}_HOSTS", f"VC_{self.name.upper()}_NUM"


def _task(manifest: ForeignFile, index: int) -> _Task:
    at = (*_TASKS, index)
    manifest.warn_unknown(at, _TASK_KNOWN)
    manifest.warn_retries((*at, "maxRetry"))
    _policies(manifest, (*at, "policies"))
    name = manifest.text((*at, "name")) or f"default{index}"
    if not re.fullmatch(r"[a-z0-9]([a-z0-9-]*[a-z0-9])?", name):
        message = f"'spec.tasks[{index}].name' is {describe_value(name)}"
        hint = "write lower-case letters, digits and hyphens"
        manifest.complain("E203", message, hint, (*at, "name"))
    replicas = manifest.whole((*at, "replicas"), default=1)
    container = container_of_pod(manifest, (*at, "template"))
    return _Task(at, name.replace("-", "_"), replicas, container)


def _policies(manifest: ForeignFile, at: Path) -> None:
    """Warn of policies without effect; a failure, or the master's end, always ends the run."""
    for index in range(len(manifest.entries(at))):
        action = manifest.get((*at, index, "action"))
        if action not in ("CompleteJob", "AbortJob", "TerminateJob"):
            why = "the run ends when a node fails or the job is done"
            manifest.warn_ignored((*at, index, "action"), why)


def _master_first(manifest: ForeignFile, tasks: list[_Task]) -> tuple[_Task, _Task]:
    """Return master and workers: by plugin mpi's arguments, else by the first single replica."""
    name = _option(manifest, "master") or "master"
    by_name = [task for task in tasks if manifest.get((*task.at, "name")) == name]
    master = next(iter(by_name or [task for task in tasks if task.replicas == 1]), tasks[0])
    worker = next(task for task in tasks if task is not master)
    if master.replicas != 1:
        message = f"no task is there once: {master.name} has {master.replicas} replicas"
        manifest.complain("E225", message, "write replicas: 1 for the master", master.at)
    return master, worker


def _option(manifest: ForeignFile, name: str) -> str:
    """Return a value from the arguments of plugin mpi or pytorch; empty if there is none."""
    plugins = (manifest.texts(("spec", "plugins", plugin)) for plugin in ("mpi", "pytorch"))
    given = " ".join(word for words in plugins for word in words)
    match = re.search(rf"--?{name}[= ](\S+)", given)
    return match[1] if match else ""


def _own_commands(manifest: ForeignFile, master: _Task, worker: _Task) -> dict[str, Any]:
    """Return the run of a master on node 0 and workers on the others, each with its commands."""
    set_up = [
        "mkdir -p /etc/volcano",
        master.export("$GPUCTL_MASTER_NODE_IP", "1"),
        worker.export('$(tail -n +2 <<<"$GPUCTL_NODES_IPS")', str(worker.replicas)),
        *_pytorch_ranks(manifest),
    ]
    roles = {}
    for role, task, index in (("master", master, "0"), ("worker", worker, "GPUCTL_NODE_RANK - 1")):
        require_command(manifest, task.container)
        exports = " ".join(f"{name}=$(({index}))" for name in _INDEX)
        known = {*_INDEX, *master.variables, *worker.variables, *_RANKS}
        commands = [*set_up, f"export {exports}", *task.container.commands(known)]
        roles[role] = {
            "env": task.container.env,
            "commands": Placed(commands, task.container.at),
        }
    image = same_image(manifest, master.container, worker.container)
    for task in (master, worker):
        check_init_containers(manifest, task.container, image)
    ends = _ends_the_job(manifest, master)
    if not ends and _ends_the_job(manifest, worker):
        message = f"task {worker.name} completes the job, while {master.name} may run on"
        hint = "write a run file of `type: ps-worker`, whose servers end with the workers"
        manifest.complain("E225", message, hint, (*worker.at, "policies"), on_key=True)
    return {
        "type": "task",
        "name": manifest.name(),
        "nodes": Placed(1 + worker.replicas, (*worker.at, "replicas")),
        **({"image": image} if image else {}),
        "stop_criteria": "master-done" if ends else "all-done",
        "roles": roles,
        "commands": Placed(["true"], master.container.at),  # both roles have their commands
    }


def _pytorch_ranks(manifest: ForeignFile) -> list[str]:
    """Return the line of bash that sets the variables of plugin pytorch; none without it.

    pkg/controllers/job/plugins/distributed-framework/pytorch of volcano-sh/volcano@ed72c7c8
    (2026-08-20): ranks count pods, the master's is 0, and the port is 23456 by default.
    """
    if manifest.get(_PYTORCH) is None:
        return []
    port = _option(manifest, "port") or "23456"
    values = ('"$GPUCTL_MASTER_NODE_IP"', port, '"$GPUCTL_NODES_NUM"', '"$GPUCTL_NODE_RANK"')
    return ["export " + " ".join(map("=".join, zip(_RANKS, values, strict=True)))]


def _ends_the_job(manifest: ForeignFile, master: _Task) -> bool:
    """Return whether the job is complete when the master is."""
    policies = (*master.at, "policies")
    return any(
        manifest.get((*policies, index, "action")) == "CompleteJob"
        for index in range(len(manifest.entries(policies)))
    )


def _mpi(manifest: ForeignFile, master: _Task, worker: _Task) -> dict[str, Any]:
    if not worker.container.only_waits:
        message = f"task {worker.name} does more than wait for mpirun (in sshd)"
        hint = "write a run file: `roles` have separate commands"
        manifest.complain("E225", message, hint, (*worker.container.at, "command"))
    exported = [*master.variables, *worker.variables]
    set_up = [
        "mkdir -p /etc/volcano",
        master.export("$GPUCTL_MASTER_NODE_IP", "1"),
        worker.export("$GPUCTL_NODES_IPS", str(worker.replicas)),
    ]
    if manifest.get(("spec", "plugins", "mpi")) is not None:
        set_up.append(f'export MPI_HOST="${worker.variables[0]}"')
        exported.append("MPI_HOST")
    job = MpiJob(
        master.container,
        worker.container,
        Placed(worker.replicas, (*worker.at, "replicas")),
        launcher_env=dict.fromkeys(_INDEX, "0"),
        set_up=tuple(set_up),
        exported=tuple(exported),
    )
    return mpi_run(manifest, job)


def _one_task(manifest: ForeignFile, task: _Task) -> dict[str, Any]:
    """Return the run of the task on every node; a replica's index is its node's rank."""
    container = task.container
    require_command(manifest, container)
    check_init_containers(manifest, container, container.image)
    index = " ".join(f'{name}="$GPUCTL_NODE_RANK"' for name in _INDEX)
    set_up = [
        "mkdir -p /etc/volcano",
        task.export("$GPUCTL_NODES_IPS", str(task.replicas)),
        f"export {index}",
        *_pytorch_ranks(manifest),
    ]
    commands = container.commands({*_INDEX, *task.variables, *_RANKS})
    return {
        "type": "task",
        "name": manifest.name(),
        "nodes": Placed(task.replicas, (*task.at, "replicas")),
        **({"image": container.image} if container.image else {}),
        "env": container.env,
        "commands": Placed([*set_up, *commands], container.at),
    }
