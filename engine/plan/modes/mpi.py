"""`type: mpi`: mpirun on node 0 starts the commands in every rank."""

from config.run.run_file import Mpi
from engine.plan.modes.job import Job, Launch
from engine.plan.modes.mpirun import mpirun_launch, rank_prelude
from engine.plan.remote_paths import rank_script_path
from engine.plan.script import job_script, quote_words


def launch(job: Job[Mpi]) -> Launch:
    """Return the launch of one mpirun; the commands of a rank are those of its node's role."""
    prelude = rank_prelude(job)
    return mpirun_launch(
        job,
        quote_words("gpuctl_ranks", "bash", rank_script_path(job.run_id)) + "\n",
        [job_script(job.commands(node.rank), before=prelude) for node in job.nodes],
    )
