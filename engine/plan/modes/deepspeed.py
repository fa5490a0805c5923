"""`type: deepspeed`: DeepSpeed's launcher on node 0 starts the commands in every rank, with pdsh.

The launcher writes variables of its environment, and its whole `.deepspeed_env`, into the arguments
of pdsh; most versions do not quote them. So gpuctl starts it without the run's variables, writes
only variables of the network to the file, and gives each rank the variables of its node.
"""

import re

from config.run.run_file import DeepSpeed
from engine.plan.modes.job import Job, Launch, Part, head_led_launch, hostfile
from engine.plan.script import (
    quote_words,
    report_failure,
    report_rank,
    require_program,
    run_rank,
    run_until_failure,
    unset_variables,
)

ENV_FILE = ".deepspeed_env"
NETWORK = ("FI_", "GLOO_", "NCCL_", "OFI_")
"""Prefixes of network variables, which may appear in process arguments."""

_PLAIN = re.compile(r"[A-Za-z0-9_./:,@%+^-]+")


def launch(job: Job[DeepSpeed]) -> Launch:
    """Return the launch: the head starts the launcher and has ranks too; workers wait for ranks."""
    slots = job.processes(job.run.procs_per_node)
    prelude = report_rank(job.paths, "$RANK", "$WORLD_SIZE") + report_failure(job.paths)

    def part(rank: int) -> Part:
        return Part(
            script=run_until_failure(job.paths) if rank else _head(job),
            environment={"DS_ENV_FILE": f"{job.paths.folder}/{ENV_FILE}"},
            files={
                ENV_FILE: _env_file(job),
                **run_rank(job.paths, prelude, job.commands(rank)),
            },
            processes=slots[job.nodes[rank].private_ip],
        )

    return head_led_launch((part(node.rank) for node in job.nodes), hostfile(slots))


def _head(job: Job[DeepSpeed]) -> str:
    command = [
        "deepspeed",
        "--hostfile",
        job.paths.hostfile,
        "--launcher",
        "pdsh",
        "--master_addr",
        job.head,
        "--master_port",
        str(job.run.port),
        "--no_python",
        "--no_local_rank",
        job.paths.with_env,
        "bash",
        job.paths.rank_script,
    ]
    pdsh = require_program("pdsh", "the package pdsh") if len(job.nodes) > 1 else ""
    return (
        require_program("deepspeed", "DeepSpeed")
        + pdsh
        + f"export PATH={job.paths.programs}:$PATH\n"
        + unset_variables(job.hidden_variables("DEEPSPEED_", "PDSH_"))
        + run_until_failure(job.paths, quote_words(*command))
    )


def _env_file(job: Job[DeepSpeed]) -> str:
    """Return `NAME=VALUE` lines of network variables without quotes, equal on all nodes."""
    return "".join(
        f"{name}={value}\n"
        for name, value in job.common_variables().items()
        if name.startswith(NETWORK) and _PLAIN.fullmatch(value)
    )
