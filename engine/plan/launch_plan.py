"""The launch plan: everything that a run executes, as one JSON value computed without I/O.

`--dry-run` prints the plan that the agent on the head node would get; nothing is decided later.
"""

import re
import secrets
from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from types import MappingProxyType

from config.run.elastic import NodeRange
from config.run.env import Secret
from config.run.run_file import NcclTests, Run
from engine.agent.head.run_state import stand_in_address
from engine.contract.codec import from_json
from engine.contract.node_plan import CodePlan, ImagePlan, NodePlan, NoticePlan
from engine.contract.plan import (
    CommonTexts,
    HangPlan,
    LaunchPlan,
    RetryPlan,
    Size,
    SizedNode,
    Sweep,
)
from engine.plan.cases import plan_sweep
from engine.plan.modes import MODES
from engine.plan.modes.job import Job, Launch, Variables, fix_size, roles_of
from engine.plan.modes.mpirun import open_mpi_defaults
from engine.plan.network.presets import choose_preset, network_plan, warnings
from engine.plan.network.settings import commands_of, user_settings
from engine.plan.node_choice import choose_nodes
from engine.plan.notify_plan import notify_plan
from engine.plan.remote_paths import checkpoint_folder, run_paths, saved_folder
from engine.plan.requirement_check import missing_software, unchecked
from engine.plan.rules import Situation, check
from engine.plan.source_tree import Tree
from nodes.inventory import Inventory, Node

WRITTEN_PASSWORD = "registry_auth.password"  # noqa: S105  a name
"""In the place of a secret's name if the run file has the password; no secret has this name."""


def new_run_id(name: str) -> str:
    """Return a new id that begins with the run's name: `nccl-tests-4f2a1c`."""
    return f"{name}-{secrets.token_hex(3)}"


def launch_plan(
    run: Run,
    inventory: Inventory,
    run_id: str,
    tree: Tree | None = None,
    load: Mapping[str, int] = MappingProxyType({}),
) -> LaunchPlan:
    """Return the plan of `run` on nodes of `inventory`: the head and the nodes closest to it,
    or the first of those that no other run has.

    `tree` has the user's files for the run's working folder. `load` has the nodes that other runs
    use (engine/plan/node_choice.py).
    Raises InputError with every rule (engine/plan/rules.py) that the run violates on these nodes.
    """
    nodes = choose_nodes(run, inventory, load)
    preset = choose_preset(run, nodes)
    variables = _variables(run, inventory, nodes)
    check(Situation(run, inventory, nodes, preset, variables))
    sizes = _sizes(run, inventory, run_id, nodes)
    job, launch = _launch(run, inventory, run_id, nodes)
    sweep: Sweep | None = None
    unknown: tuple[str, ...] = ()
    if isinstance(run, NcclTests):
        sweep, unknown = plan_sweep(run, launch.cases, inventory.instance_type, len(nodes))
    return LaunchPlan(
        type=run.type,
        run_id=run_id,
        name=run.name,
        cluster=inventory.cluster,
        head=inventory.nodes[0].name,
        startup_order=launch.startup_order,
        stop_criteria=launch.stop_criteria,
        max_duration_s=run.max_duration,
        startup_timeout_s=run.startup_timeout,
        no_output_timeout_s=run.no_output_timeout,
        hang=None if run.hang is None else HangPlan(run.hang.after, run.hang.action),
        retry=_retry(run),
        notify=tuple(notify_plan(target) for target in run.notify),
        on_stop=run.on_stop,
        saved=saved_folder(run_id, inventory.shared) if run.on_stop == "destroy" else "",
        ready=launch.ready,
        image=_image(run),
        code=_code(run, tree),
        network=network_plan(run, preset, inventory, nodes),
        nodes=tuple(_node_plan(job, launch, inventory, rank) for rank in range(len(nodes))),
        least_nodes=len(sizes[0].nodes) if sizes else None,
        sizes=sizes,
        cluster_ips=tuple(node.private_ip for node in inventory.nodes),
        is_spot=inventory.is_spot,
        is_rented=inventory.is_rented,
        ends_at=None if inventory.ends is None else inventory.ends.timestamp(),
        stop_grace_s=run.stop_grace,
        on_notice=NoticePlan(
            signal=run.on_notice.signal or "",
            file=run.on_notice.file or "",
            command=run.on_notice.command or "",
        ),
        dashboard=launch.dashboard,
        ports=run.ports,
        programs=tuple(case.program for case in launch.cases) or _programs(run),
        sweep=sweep,
        warnings=(
            *warnings(preset, user_settings(run, tree.scripts if tree else {}), nodes),
            *unknown,
            *unchecked(run, inventory),
            *missing_software(run, inventory, nodes, tree.scripts if tree else {}),
            *_outlived(run, inventory),
        ),
    )


def _outlived(run: Run, inventory: Inventory) -> Iterator[str]:
    """Yield a warning if the run may last longer than its nodes."""
    if inventory.ends is None:
        return
    left = inventory.ends - datetime.now(UTC)
    if run.max_duration is not None and run.max_duration <= left.total_seconds():
        return
    limit = "the run has no max_duration"
    if run.max_duration is not None:
        limit = f"max_duration is {timedelta(seconds=run.max_duration)}"
    yield (
        f"AWS ends the nodes at {inventory.ends.astimezone(UTC):%Y-%m-%d %H:%M} UTC, half an hour"
        f" before their capacity block ends, in {timedelta(seconds=int(left.total_seconds()))};"
        f" {limit}"
    )


def _variables(run: Run, inventory: Inventory, nodes: tuple[Node, ...]) -> tuple[Variables, ...]:
    """Return the variables of each node from its network preset, the run and its role."""
    preset = choose_preset(run, nodes).environment(run, nodes, inventory.instance_type)
    under = {**preset, **open_mpi_defaults(run)}
    return tuple(_variables_of(run, role, under) for role in roles_of(run, len(nodes)))


def _variables_of(run: Run, role: str, preset: Mapping[str, str]) -> Variables:
    """Return a node's variables from preset, run and role; later sources override earlier ones.

    They override those of a login on the node, and are overridden by those that gpuctl owns.
    """
    own = run.roles[role].env if role in run.roles else {}
    merged: dict[str, str | Secret] = {**preset, **run.env, **own}
    return Variables(
        values={name: value for name, value in merged.items() if isinstance(value, str)},
        secrets={name: value.secret for name, value in merged.items() if isinstance(value, Secret)},
    )


def _launch(
    run: Run, inventory: Inventory, run_id: str, nodes: tuple[Node, ...]
) -> tuple[Job[Run], Launch]:
    """Return the run on exactly these nodes, and how its type launches it."""
    fixed, roles = fix_size(run, len(nodes)), roles_of(run, len(nodes))
    job = Job(fixed, run_paths(inventory, run_id), nodes, roles, _variables(run, inventory, nodes))
    return job, MODES[run.type](job)


def _sizes(
    run: Run, inventory: Inventory, run_id: str, nodes: tuple[Node, ...]
) -> tuple[Size, ...]:
    """Return the plans on fewer nodes, from the fewest on, for a run that may go on with them."""
    if not isinstance(run.nodes, NodeRange) or run.retry is None:
        return ()
    counts = range(run.nodes.min, len(nodes))
    return tuple(_size(run, inventory, run_id, nodes[:count]) for count in counts)


def _size(run: Run, inventory: Inventory, run_id: str, nodes: tuple[Node, ...]) -> Size:
    """Return the plan on as many nodes as these, whichever nodes will be left."""
    nodes = _stand_ins(nodes)
    job, launch = _launch(run, inventory, run_id, nodes)
    plans = [_node_plan(job, launch, inventory, rank) for rank in range(len(nodes))]
    common = CommonTexts.of(plans)
    return Size(
        network=network_plan(run, choose_preset(run, nodes), inventory, nodes),
        startup_order=launch.startup_order,
        stop_criteria=launch.stop_criteria,
        ready=launch.ready,
        common=common,
        nodes=tuple(
            SizedNode(
                role=own.role,
                processes=own.processes,
                environment=own.environment,
                secrets=own.secrets,
                files=own.files,
                script=own.script or None,
            )
            for own in map(common.remove_from, plans)
        ),
    )


def _node_plan(job: Job[Run], launch: Launch, inventory: Inventory, rank: int) -> NodePlan:
    node, part, own = job.nodes[rank], launch.parts[rank], job.variables[rank]
    folder = job.paths.folder
    files = {"hostfile": launch.hostfile, **part.files}
    return NodePlan(
        rank=rank,
        name=node.name,
        private_ip=node.private_ip,
        role=job.roles[rank],
        environment={
            **own.values,
            **_node_environment(job, inventory, rank),
            **part.environment,
        },
        secrets=dict(own.secrets),
        script=part.script,
        files={f"{folder}/{name}": text for name, text in files.items()},
        processes=part.processes,
    )


def _node_environment(job: Job[Run], inventory: Inventory, rank: int) -> dict[str, str]:
    """Return dstack's variables for this node, the same as GPUCTL_*, and those of gpuctl alone.

    The supervisor increments GPUCTL_RESTART_COUNT. IPs are one per line, in rank order. A node
    without GPUs has 0, as in dstack (executor.go of dstack's runner, 2026-11-20).
    """
    node = job.nodes[rank]
    shared = {
        "RUN_NAME": job.run.name,
        "RUN_ID": job.paths.run_id,
        "NODES_NUM": str(len(job.nodes)),
        "NODES_IPS": "\n".join(other.private_ip for other in job.nodes),
        "MASTER_NODE_IP": job.head,
        "NODE_RANK": str(rank),
        "GPUS_PER_NODE": str(node.gpus),
        "GPUS_NUM": str(sum(other.gpus for other in job.nodes)),
        "HOSTFILE": job.paths.hostfile,
    }
    ours = {
        "GPUCTL_CLUSTER": inventory.cluster,
        "GPUCTL_REGION": inventory.region,
        "GPUCTL_NODE_NAME": node.name,
        "GPUCTL_NODE_ROLE": job.roles[rank],
        "GPUCTL_RUN_FOLDER": job.paths.folder,
        "GPUCTL_CHECKPOINT_DIR": checkpoint_folder(job.paths, inventory.shared),
        "GPUCTL_RESTART_COUNT": "0",
    }
    if _has_work_folder(job.run):
        ours["GPUCTL_WORKDIR"] = job.paths.work
    return {
        **{f"DSTACK_{name}": value for name, value in shared.items()},
        "DSTACK_MPI_HOSTFILE": shared["HOSTFILE"],
        **{f"GPUCTL_{name}": value for name, value in shared.items()},
        **ours,
    }


def _has_work_folder(run: Run) -> bool:
    """Return whether the run has a working folder, because it names code or outputs."""
    return bool(run.workdir or run.repo or run.files or run.outputs)


def _retry(run: Run) -> RetryPlan | None:
    if run.retry is None:
        return None
    return RetryPlan(
        attempts=run.retry.attempts,
        on=run.retry.on,
        backoff_s=run.retry.backoff,
        node_wait_s=run.retry.node_wait,
    )


_PROGRAM = re.compile(
    r"\b((?:all_reduce|all_gather|alltoallv?|broadcast|gather|hypercube|reduce|reduce_scatter|scatter"
    r"|sendrecv)_perf(?:_\w+)?)\b"
)


def _programs(run: Run) -> tuple[str, ...]:
    """Return the programs of nccl-tests in the order in which the run's commands name them."""
    return tuple(name for text in commands_of(run) for name in _PROGRAM.findall(text))


def _image(run: Run) -> ImagePlan | None:
    if run.image is None:
        return None
    auth = run.registry_auth
    return ImagePlan(
        reference=run.image,
        username=auth.username if auth else "",
        password_secret=_password_secret(auth.password) if auth else "",
        privileged=run.privileged,
        volumes=run.volumes,
    )


def _password_secret(password: str | Secret) -> str:
    return WRITTEN_PASSWORD if isinstance(password, str) else password.secret


def _code(run: Run, tree: Tree | None) -> CodePlan | None:
    if not _has_work_folder(run):
        return None
    tree_fields = {"tree": tree.digest, "files": len(tree.files), "size": tree.size} if tree else {}
    return from_json(CodePlan, {"outputs": run.outputs, **tree_fields})


def _stand_ins(nodes: Sequence[Node]) -> tuple[Node, ...]:
    """Return the nodes with stand-ins for their addresses.

    A run with `nodes: {min: 2, max: 4}` that has lost a node goes on with three. The head cannot
    plan, so hostfile, ranks and environment for three nodes are in the launch plan already
    (engine/agent/head/run_state.py).
    """
    return tuple(
        node.model_copy(update={"rank": rank, "private_ip": stand_in_address(rank)})
        for rank, node in enumerate(nodes)
    )
