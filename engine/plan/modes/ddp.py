"""`type: ddp`: the commands run on every node; workers wait for the master. As in TI-ONE."""

from config.run.run_file import Ddp
from engine.contract.node_plan import ReadyPlan
from engine.plan.modes.job import Job, Launch, Part, hostfile
from engine.plan.script import job_script


def launch(job: Job[Ddp]) -> Launch:
    """Return the launch; `RANK` and `WORLD_SIZE` count nodes, workers wait for the master."""
    alone = len(job.nodes) == 1
    listens = ReadyPlan(port=job.run.port, command=None, timeout_s=job.run.ready_timeout)
    return Launch(
        parts=tuple(
            Part(job_script(job.commands(node.rank)), _environment(job, node.rank))
            for node in job.nodes
        ),
        hostfile=hostfile(job.gpus()),
        startup_order="any" if alone else "master-first",
        ready=None if alone else listens,
    )


def _environment(job: Job[Ddp], rank: int) -> dict[str, str]:
    return {
        **job.ti_one_environment(rank),
        "MASTER_ADDR": job.head,
        "MASTER_PORT": str(job.run.port),
        "WORLD_SIZE": str(len(job.nodes)),
        "RANK": str(rank),
    }
