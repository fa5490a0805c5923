"""`type: task`: the commands run on every node, as in a task of dstack."""

from config.run.run_file import Task
from engine.hostfile import hostfile
from engine.modes.job import Job, Launch, Part, ReadyPlan
from engine.script import job_script


def launch(job: Job[Task]) -> Launch:
    """Return the launch: each node runs its role's commands; the run file has all conditions."""
    run, ready = job.run, job.run.ready
    has_probe = ready.port is not None or ready.command is not None
    return Launch(
        parts=tuple(Part(job_script(job.commands(node.rank))) for node in job.nodes),
        hostfile=hostfile(job.gpus()),
        startup_order=run.startup_order,
        stop_criteria=run.stop_criteria,
        ready=ReadyPlan(port=ready.port, command=ready.command, timeout_s=ready.timeout)
        if has_probe
        else None,
    )
