"""The environment of every process of a run, except for the variables of its type (plan/modes).

Later sources override earlier ones: a login on the node, the network preset, the run's `env`, the
role's `env`, the variables that gpuctl owns. Nodes differ only in their numbers and roles.
"""

from collections.abc import Mapping

from config.run.env import Secret
from config.run.run_file import Run
from engine.plan.modes.job import Job, Variables
from engine.plan.remote_paths import checkpoint_folder, hostfile_path, run_folder, work_folder
from nodes.inventory import Inventory


def variables_of(run: Run, role: str, preset: Mapping[str, str]) -> Variables:
    """Return a node's variables from preset, run and role; later sources override earlier ones."""
    own = run.roles[role].env if role in run.roles else {}
    merged: dict[str, str | Secret] = {**preset, **run.env, **own}
    return Variables(
        values={name: value for name, value in merged.items() if isinstance(value, str)},
        secrets={name: value.secret for name, value in merged.items() if isinstance(value, Secret)},
    )


def has_work_folder(run: Run) -> bool:
    """Return whether the run has a working folder, because it names code or outputs."""
    return bool(run.workdir or run.repo or run.files or run.outputs)


def node_environment(job: Job[Run], inventory: Inventory, rank: int) -> dict[str, str]:
    """Return dstack's variables for this node, the same as GPUCTL_*, and those of gpuctl alone.

    The supervisor increments GPUCTL_RESTART_COUNT. IPs are one per line, in rank order. A node
    without GPUs has 0, as in dstack (executor.go of
    dstack's runner, 2026-11-20).
    """
    node = job.nodes[rank]
    shared = {
        "RUN_NAME": job.run.name,
        "RUN_ID": job.run_id,
        "NODES_NUM": str(len(job.nodes)),
        "NODES_IPS": "\n".join(other.private_ip for other in job.nodes),
        "MASTER_NODE_IP": job.head,
        "NODE_RANK": str(rank),
        "GPUS_PER_NODE": str(node.gpus),
        "GPUS_NUM": str(sum(other.gpus for other in job.nodes)),
        "HOSTFILE": hostfile_path(job.run_id),
    }
    ours = {
        "GPUCTL_CLUSTER": inventory.cluster,
        "GPUCTL_REGION": inventory.region,
        "GPUCTL_NODE_NAME": node.name,
        "GPUCTL_NODE_ROLE": job.roles[rank],
        "GPUCTL_RUN_FOLDER": run_folder(job.run_id),
        "GPUCTL_CHECKPOINT_DIR": checkpoint_folder(job.run_id, inventory.shared),
        "GPUCTL_RESTART_COUNT": "0",
    }
    if has_work_folder(job.run):
        ours["GPUCTL_WORKDIR"] = work_folder(job.run_id)
    return {
        **{f"DSTACK_{name}": value for name, value in shared.items()},
        "DSTACK_MPI_HOSTFILE": shared["HOSTFILE"],
        **{f"GPUCTL_{name}": value for name, value in shared.items()},
        **ours,
    }
