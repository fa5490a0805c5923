"""`type: torchrun`: torchrun runs on every node; `PET_*` variables are its options.

With a fixed number of nodes and no restarts the rendezvous is `static` at node 0: ranks are in the
order of the nodes, which follows the network. Otherwise torch numbers the nodes itself (`c10d`),
and gpuctl does not check the number of ranks.
"""

from config.run.run_file import Torchrun
from engine.plan.modes.job import Job, Launch, Part, hostfile, node_range
from engine.plan.script import (
    keep_error,
    quote_words,
    report_failure,
    report_rank,
    run_rank,
    run_until_failure,
)

# Debian's python3-torch has the module without the program.
_FIND = """\
if command -v torchrun >/dev/null; then
  gpuctl_torchrun=(torchrun)
elif python3 -c 'import torch.distributed.run' 2>/dev/null; then
  gpuctl_torchrun=(python3 -m torch.distributed.run)
else
  echo "gpuctl: $GPUCTL_NODE_NAME has no torchrun, and its python3 no torch.distributed.run; \
install PyTorch in the image or on the nodes" >&2
  exit 127
fi
"""

# Without it, --tee tags lines with the number of the rank on its node (`[default0]:`). PyTorch has
# it from 2.3 on (torch/distributed/run.py); older versions ignore it. With a space after it, a
# traceback that the job prints looks like PyTorch's own (engine/agent/judge/rank_failures).
_TEE_TAG = "[rank$rank]:"


def launch(job: Job[Torchrun]) -> Launch:
    """Return the launch: every node runs the same torchrun, which starts the node's ranks."""
    slots = job.processes(job.run.procs_per_node)
    words = ["--no_python", "bash", job.paths.rank_script]
    launcher = f'"${{gpuctl_torchrun[@]}}" {quote_words(*words)}\n'
    fixed = _is_fixed(job)
    script = _FIND + (run_until_failure(job.paths, launcher) if fixed else f"exec {launcher}")
    prelude = ""
    if fixed:
        prelude = report_rank(job.paths, "$RANK", "$WORLD_SIZE")
        prelude += report_failure(job.paths, keep_error(job.paths))
    return Launch(
        parts=tuple(
            Part(
                script,
                _environment(job, node.rank),
                run_rank(job.paths, prelude, job.commands(node.rank)),
                processes=slots[node.private_ip] if fixed else 0,
            )
            for node in job.nodes
        ),
        hostfile=hostfile(slots),
    )


def _is_fixed(job: Job[Torchrun]) -> bool:
    least, most = node_range(job.run)
    return least == most and job.run.max_restarts == 0


def _environment(job: Job[Torchrun], rank: int) -> dict[str, str]:
    run, node, port = job.run, job.nodes[rank], str(job.run.port)
    least, _ = node_range(run)
    most = len(job.nodes)
    common = {
        "PET_NNODES": str(most) if least == most else f"{least}:{most}",
        "PET_NPROC_PER_NODE": str(run.procs_per_node or node.slots),
        "PET_RDZV_ID": job.paths.run_id,
        "PET_MAX_RESTARTS": str(run.max_restarts),
        "PET_LOCAL_ADDR": node.private_ip,
        "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE": _TEE_TAG,
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
        # A node whose name resolves to 127.0.1.1 would not recognize the address as its own.
        "PET_RDZV_CONF": f"is_host={int(rank == 0)}",
    }
