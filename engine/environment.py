"""What every process of a run finds in its environment: dstack's names, and ours beside them."""

from collections.abc import Mapping

from config.errors import InputError
from config.run import Run
from engine.places import hostfile_path
from nodes.inventory import Inventory, Node

_LONGEST = 131_071
"""Bytes of `NAME=value` that Linux passes to a program: MAX_ARG_STRLEN less the final NUL
(execve(2), 2026-11-20)."""


def node_environment(run: Run, run_id: str, inventory: Inventory, node: Node) -> dict[str, str]:
    """Dstack's variables for this node, the same as GPUCTL_*, and what only gpuctl has.

    IPs are one per line, in rank order. A type without GPUs has 0, as in dstack
    (executor.go of dstack's runner, 2026-11-20).
    """
    nodes = inventory.nodes[: run.nodes]
    shared = {
        "RUN_NAME": run.name,
        "RUN_ID": run_id,
        "NODES_NUM": str(len(nodes)),
        "NODES_IPS": "\n".join(other.private_ip for other in nodes),
        "MASTER_NODE_IP": nodes[0].private_ip,
        "NODE_RANK": str(node.rank),
        "GPUS_PER_NODE": str(node.gpus),
        "GPUS_NUM": str(sum(other.gpus for other in nodes)),
        "HOSTFILE": hostfile_path(run_id),
    }
    ours = {
        "GPUCTL_CLUSTER": inventory.cluster,
        "GPUCTL_REGION": inventory.region,
        "GPUCTL_NODE_NAME": node.name,
        "GPUCTL_NODE_ROLE": "master" if node.rank == 0 else "worker",
    }
    return {
        **{f"DSTACK_{name}": value for name, value in shared.items()},
        "DSTACK_MPI_HOSTFILE": shared["HOSTFILE"],
        **{f"GPUCTL_{name}": value for name, value in shared.items()},
        **ours,
    }


def check_environment(environment: Mapping[str, str]) -> None:
    """Raises InputError for a value that no process can get; names the model has checked."""
    for name, value in environment.items():
        size = len(f"{name}={value}".encode())
        if size > _LONGEST:
            raise InputError(
                f"env {name} is {size} bytes long, Linux passes {_LONGEST}",
                "put it into a file on the nodes",
            )
