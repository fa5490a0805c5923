"""`type: torchrun`: torchrun on every node; its options are the environment's `PET_*`.

A fixed number of nodes without restarts meets at node 0 (`static`): ranks then are in the order of
the nodes, which follows the network's. Where ranks may come and go, torch numbers the nodes itself
(`c10d`), so nothing counts them.
"""

from config.run.run_file import Torchrun
from engine.hostfile import hostfile
from engine.modes.job import Job, Launch, Part, nodes_wanted
from engine.places import rank_script_path
from engine.script import call, job_script, tell_failure, tell_rank, until_failure

# Debian's python3-torch has the module without the program.
_FIND = """\
if command -v torchrun >/dev/null; then
  gpuctl_torchrun=(torchrun)
elif python3 -c 'import torch.distributed.run' 2>/dev/null; then
  gpuctl_torchrun=(python3 -m torch.distributed.run)
else
  echo "gpuctl: $GPUCTL_NODE_NAME has no torchrun, and its python3 no torch.distributed.run; \
the image or the nodes' setup has to bring PyTorch" >&2
  exit 127
fi
"""


def launch(job: Job[Torchrun]) -> Launch:
    """Every node starts the same command; torchrun starts its ranks."""
    slots = job.processes(job.run.procs_per_node)
    words = ["--no_python", "bash", rank_script_path(job.run_id)]
    launcher = f'"${{gpuctl_torchrun[@]}}" {call(*words)}\n'
    fixed = _is_fixed(job)
    script = _FIND + (until_failure(job.run_id, launcher) if fixed else f"exec {launcher}")
    prelude = ""
    if fixed:
        prelude = tell_rank(job.run_id, "$RANK", "$WORLD_SIZE") + tell_failure(job.run_id)
    return Launch(
        parts=tuple(
            Part(
                script,
                _environment(job, node.rank),
                {"rank.sh": prelude + job_script(job.commands(node.rank))},
                processes=slots[node.private_ip] if fixed else 0,
            )
            for node in job.nodes
        ),
        hostfile=hostfile(slots),
    )


def _is_fixed(job: Job[Torchrun]) -> bool:
    least, most = nodes_wanted(job.run)
    return least == most and job.run.max_restarts == 0


def _environment(job: Job[Torchrun], rank: int) -> dict[str, str]:
    run, node, port = job.run, job.nodes[rank], str(job.run.port)
    least, _ = nodes_wanted(run)
    most = len(job.nodes)
    common = {
        "PET_NNODES": str(most) if least == most else f"{least}:{most}",
        "PET_NPROC_PER_NODE": str(run.procs_per_node or node.slots),
        "PET_RDZV_ID": job.run_id,
        "PET_MAX_RESTARTS": str(run.max_restarts),
        "PET_LOCAL_ADDR": node.private_ip,
    }
    if _is_fixed(job):
        return {
            **common,
            "PET_RDZV_BACKEND": "static",
            "PET_NODE_RANK": str(rank),
            "PET_MASTER_ADDR": job.head,
            "PET_MASTER_PORT": port,
        }
    return {
        **common,
        "PET_RDZV_BACKEND": "c10d",
        "PET_RDZV_ENDPOINT": f"{job.head}:{port}",
        # Left to itself, a node whose name is 127.0.1.1 does not know that the address is its own.
        "PET_RDZV_CONF": f"is_host={int(rank == 0)}",
    }
