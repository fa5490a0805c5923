"""`type: ps-worker`: parameter servers and workers; each gets all addresses in `TF_CONFIG`."""

import json

from config.run.run_file import PsWorker
from engine.plan.modes.job import Job, Launch, Part, hostfile
from engine.plan.script import job_script


def launch(job: Job[PsWorker]) -> Launch:
    """Return the launch: every node is one task of its role; servers end with the workers."""
    addresses: dict[str, list[str]] = {name: [] for name in job.run.ROLES}
    configs = []
    for node, role in zip(job.nodes, job.roles, strict=True):
        configs.append({"type": role, "index": len(addresses[role])})
        addresses[role].append(f"{node.private_ip}:{job.run.port}")
    return Launch(
        parts=tuple(
            Part(
                job_script(job.commands(rank)),
                {
                    **job.ti_one_environment(rank),
                    # TI-ONE writes "cloud" too.
                    "TF_CONFIG": json.dumps(
                        {"cluster": addresses, "task": task, "environment": "cloud"}
                    ),
                },
            )
            for rank, task in enumerate(configs)
        ),
        hostfile=hostfile(job.gpus()),
        stop_criteria="workers-done",
    )
