"""The launch plan: everything that will be executed, as one JSON value made without any I/O.

What `--dry-run` prints is what the agent on the head node gets; nothing is decided later.
"""

import secrets
from typing import Literal

from config.errors import InputError
from config.resolved import Value
from config.run import Run
from engine.environment import check_environment, node_environment
from engine.hostfile import hostfile
from engine.places import hostfile_path
from engine.script import job_script
from nodes.inventory import Inventory, Node


class ReadyPlan(Value):
    """When a node that others wait for is ready; neither port nor command: once it has started."""

    port: int | None
    command: str | None
    timeout_s: int


class NodePlan(Value):
    """What one node executes. `files` are paths on the node and their text."""

    rank: int
    name: str
    private_ip: str
    role: Literal["master", "worker"]
    environment: dict[str, str]
    script: str
    files: dict[str, str]


class LaunchPlan(Value):
    """A run, ready to be executed; `nodes` in rank order, the first is the head.

    `cluster_ips` are all nodes of the cluster, those that this run leaves idle included: what
    powers off when the run says `destroy` and no client is there to do it. `is_spot`: AWS may take
    the nodes back.
    """

    schema_version: int = 1
    run_id: str
    name: str
    cluster: str
    startup_order: Literal["any", "master-first", "workers-first"]
    stop_criteria: Literal["all-done", "master-done"]
    max_duration_s: int | None
    on_stop: Literal["keep", "destroy"]
    ready: ReadyPlan | None
    nodes: tuple[NodePlan, ...]
    cluster_ips: tuple[str, ...]
    is_spot: bool = False


def new_run_id(name: str) -> str:
    """A new id that says which run it is: `nccl-tests-4f2a1c`."""
    return f"{name}-{secrets.token_hex(3)}"


def launch_plan(run: Run, inventory: Inventory, run_id: str) -> LaunchPlan:
    """The plan of `run` on the first nodes of `inventory`.

    Raises InputError when the run wants more nodes than there are, or sets names of the
    environment that are gpuctl's.
    """
    if run.nodes > len(inventory.nodes):
        raise InputError(
            f"run {run.name} wants {run.nodes} nodes, cluster {inventory.cluster} has"
            f" {len(inventory.nodes)}",
            f"set `nodes: {len(inventory.nodes)}`, or bring up a larger cluster",
        )
    check_environment(run.env)
    nodes = inventory.nodes[: run.nodes]
    script = job_script(run.commands)

    def node_plan(node: Node) -> NodePlan:
        return NodePlan(
            rank=node.rank,
            name=node.name,
            private_ip=node.private_ip,
            role="master" if node.rank == 0 else "worker",
            environment={**run.env, **node_environment(run, run_id, inventory, node)},
            script=script,
            files={hostfile_path(run_id): hostfile(nodes)},
        )

    return LaunchPlan(
        run_id=run_id,
        name=run.name,
        cluster=inventory.cluster,
        startup_order=run.startup_order,
        stop_criteria=run.stop_criteria,
        max_duration_s=run.max_duration,
        on_stop=run.on_stop,
        ready=_ready(run),
        nodes=tuple(node_plan(node) for node in nodes),
        cluster_ips=tuple(node.private_ip for node in inventory.nodes),
        is_spot=inventory.is_spot,
    )


def _ready(run: Run) -> ReadyPlan | None:
    ready = run.ready
    if ready.port is None and ready.command is None:
        return None
    return ReadyPlan(port=ready.port, command=ready.command, timeout_s=ready.timeout)
