"""`type: deepspeed`: DeepSpeed's launcher on node 0 starts the commands in every rank, by pdsh.

The launcher writes variables of its environment, and all of its `.deepspeed_env`, into the
arguments of pdsh, most versions without quotes. So it is started without the run's variables, the
file has those of the network alone, and each rank gets the variables of its node.
"""

import re

from config.run.run_file import DeepSpeed
from engine.hostfile import hostfile
from engine.modes.job import Job, Launch, Part, led_by_head
from engine.places import (
    hostfile_path,
    programs_path,
    rank_script_path,
    run_folder,
    with_env_path,
)
from engine.script import (
    call,
    job_script,
    require,
    tell_failure,
    tell_rank,
    until_failure,
    without,
)

ENV_FILE = ".deepspeed_env"
NETWORK = ("FI_", "GLOO_", "NCCL_", "OFI_")
"""How variables begin that tell of the network: they may stand in process arguments."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+^-]+")


def launch(job: Job[DeepSpeed]) -> Launch:
    """The launcher's node has ranks too; workers wait."""
    slots = job.processes(job.run.procs_per_node)
    prelude = tell_rank(job.run_id, "$RANK", "$WORLD_SIZE") + tell_failure(job.run_id)

    def part(rank: int) -> Part:
        return Part(
            script=until_failure(job.run_id) if rank else _head(job),
            environment={"DS_ENV_FILE": f"{run_folder(job.run_id)}/{ENV_FILE}"},
            files={
                ENV_FILE: _env_file(job),
                "rank.sh": prelude + job_script(job.commands(rank)),
            },
            processes=slots[job.nodes[rank].private_ip],
        )

    return led_by_head((part(node.rank) for node in job.nodes), hostfile(slots))


def _head(job: Job[DeepSpeed]) -> str:
    command = [
        *("deepspeed", "--hostfile", hostfile_path(job.run_id), "--launcher", "pdsh"),
        *("--master_addr", job.head, "--master_port", str(job.run.port)),
        *("--no_python", "--no_local_rank"),
        *(with_env_path(job.run_id), "bash", rank_script_path(job.run_id)),
    ]
    pdsh = require("pdsh", "the package pdsh") if len(job.nodes) > 1 else ""
    return (
        require("deepspeed", "DeepSpeed")
        + pdsh
        + f"export PATH={programs_path(job.run_id)}:$PATH\n"
        + without(job.hidden("DEEPSPEED_", "PDSH_"))
        + until_failure(job.run_id, call(*command))
    )


def _env_file(job: Job[DeepSpeed]) -> str:
    """`NAME=VALUE` lines of the network's variables that are plain words and alike on all nodes."""
    return "".join(
        f"{name}={value}\n"
        for name, value in job.alike().items()
        if name.startswith(NETWORK) and _PLAIN.fullmatch(value)
    )
