"""`type: task`: the commands run on every node, as in a task of dstack."""

import re

from config.run.run_file import Task
from engine.contract.node_plan import ReadyPlan
from engine.plan.modes.job import Job, Launch, Part, hostfile
from engine.plan.script import job_script


def launch(job: Job[Task]) -> Launch:
    """Return the launch: each node runs its role's commands; the run file has all conditions."""
    run, ready = job.run, job.run.ready
    has_probe = ready.port is not None or ready.command is not None
    return Launch(
        parts=tuple(Part(job_script(_commands(job, node.rank))) for node in job.nodes),
        hostfile=hostfile(job.gpus()),
        startup_order=run.startup_order,
        stop_criteria=run.stop_criteria,
        ready=ReadyPlan(port=ready.port, command=ready.command, timeout_s=ready.timeout)
        if has_probe
        else None,
    )


_ADDRESS = re.compile(r"\$\{\{ nodes\[([0-9]+)\]\.ip \}\}")


def _commands(job: Job[Task], rank: int) -> list[str]:
    """Return the node's commands, in which `${{ nodes[N].ip }}` is the address of node N."""
    addresses = {str(node.rank): node.private_ip for node in job.nodes}
    return [
        _ADDRESS.sub(lambda match: addresses.get(match[1], match[0]), text)
        for text in job.commands(rank)
    ]
