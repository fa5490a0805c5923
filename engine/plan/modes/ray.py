"""`type: ray`: the nodes form a Ray cluster; the commands run on its head when all have joined."""

import json

from config.run.run_file import Ray
from engine.contract.node_plan import ReadyPlan
from engine.plan.modes.job import Job, Launch, Part, hostfile
from engine.plan.script import job_script, quote_words, require_program

JOIN_S = 900
"""Seconds that the head waits for the others (NODE_START_WAIT_S in
python/ray/autoscaler/_private/constants.py, 2026-11-20)."""

START_S = 300
"""Seconds that workers wait for the head."""

JOIN_TRIES_S = 60
"""Seconds within which a worker that failed is started once more. A head under load can miss the
30 s that Ray gives a worker to join (python/ray/_private/node.py, Ray 2.60, 2026-11-28)."""

# The head's port answers long before Ray has started there.
_STARTED = "ray-started"

# Ray does not report when a node joins, so the script asks once a second.
_WAIT_FOR_NODES = f"""\
import logging, os, sys, time, ray
ray.init(log_to_driver=False, logging_level=logging.ERROR)
wanted, until = int(os.environ["GPUCTL_NODES_NUM"]), time.monotonic() + {JOIN_S}
while (there := sum(node["Alive"] for node in ray.nodes())) < wanted:
    if time.monotonic() > until:
        sys.exit(f"gpuctl: {{there}} of {{wanted}} nodes joined Ray within {JOIN_S} s")
    time.sleep(1)
"""


# When the run is over, a worker has nothing to drain; by default Ray waits 30 s.
_NO_DRAIN = "export RAY_GRACEFUL_SHUTDOWN_DRAIN_TIMEOUT_S=0\n"


def launch(job: Job[Ray]) -> Launch:
    """Return the launch: workers wait for Ray on the head; the head's commands end the run."""
    alone = len(job.nodes) == 1
    started = f"test -e {job.paths.folder}/{_STARTED}"
    listens = ReadyPlan(port=job.run.port, command=started, timeout_s=START_S)

    def part(rank: int) -> Part:
        environment = {
            **job.ti_one_environment(rank),
            "HEAD_ADDR": job.head,
            "HEAD_PORT": str(job.run.port),
            "RANK": str(rank),
            "RAY_ADDRESS": f"{job.head}:{job.run.port}",
        }
        if rank:
            return Part(_worker(job, rank), environment)
        files = {
            "wait-for-nodes.py": _WAIT_FOR_NODES,
            "commands.sh": job_script(job.commands(rank)),
        }
        return Part(_head(job), environment, files)

    return Launch(
        parts=tuple(part(node.rank) for node in job.nodes),
        hostfile=hostfile(job.gpus()),
        startup_order="any" if alone else "master-first",
        stop_criteria="master-done",
        ready=None if alone else listens,
        dashboard=f"http://{job.head}:{job.run.dashboard_port}",
    )


def _head(job: Job[Ray]) -> str:
    folder, run = job.paths.folder, job.run
    start = [
        "ray",
        "start",
        "--head",
        "--port",
        str(run.port),
        *_node_options(job, 0),
        "--disable-usage-stats",
        "--dashboard-host",
        "0.0.0.0",  # noqa: S104  from outside only ssh reaches a node
        "--dashboard-port",
        str(run.dashboard_port),
    ]
    return (
        f"{require_program('ray', 'Ray')}"
        f"rm -f {folder}/{_STARTED}\n"
        f"{quote_words(*start)} || exit\n"
        f": > {folder}/{_STARTED}\n"
        f"python3 {folder}/wait-for-nodes.py && bash {folder}/commands.sh\n"
        "gpuctl_status=$?\n"
        "ray stop >/dev/null 2>&1\n"
        'exit "$gpuctl_status"\n'
    )


def _worker(job: Job[Ray], rank: int) -> str:
    address = f"{job.head}:{job.run.port}"
    start = ["ray", "start", "--address", address, *_node_options(job, rank), "--block"]
    return (
        f"{require_program('ray', 'Ray')}{_NO_DRAIN}"
        "for gpuctl_try in 1 2; do\n"
        "SECONDS=0\n"
        f"{quote_words(*start)} && exit\n"
        "gpuctl_status=$?\n"
        f'[ "$SECONDS" -lt {JOIN_TRIES_S} ] || break\n'
        'echo "gpuctl: Ray ended with $gpuctl_status after $SECONDS s (try $gpuctl_try of 2)"\n'
        "ray stop --force >/dev/null 2>&1\n"
        "done\n"
        'exit "$gpuctl_status"\n'
    )


def _node_options(job: Job[Ray], rank: int) -> tuple[str, ...]:
    """Return the node's address and resources as options; 0.001 of one pins to it, as in TI-ONE."""
    resources = json.dumps({f"Rank:{rank}": 1, job.roles[rank]: 1})
    address = job.nodes[rank].private_ip
    return ("--node-ip-address", address, "--resources", resources)
