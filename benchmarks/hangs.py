"""The score of verdicts on hangs: faults planted by a seed in real jobs, and the ranks named.

    sudo .venv/bin/python -m benchmarks.hangs ROOT --faults 24 --healthy 6 --seed 7

A real supervisor and real workers are processes of this machine; the jobs are torchrun's on two
nodes (gloo) and Open MPI's on one, 4 ranks each, on CPU. ROOT is a folder with a system that has
both, such as the lab's image `~/.cache/gpuctl/lab/frameworks-…`. One rank of each job gets a fault
in a step; `seconds` are from the end of `hang.after` to the verdict. Healthy jobs have steps that
are silent for half of that time.
"""

import argparse
import asyncio
import os
import random
import shutil
import tempfile
import zipfile
from io import BytesIO
from pathlib import Path
from statistics import median
from typing import NamedTuple

from engine.contract.head_events import HangJudged
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Output
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.session.bundle import agent_bundle
from tests.engine.conftest import TOOLS, LocalCluster, end_jobs, make_inventory, make_run

RANKS = 4
AFTER_S = 6
FAULTS = ("loader", "lock", "loop", "pipe", "other collective", "stopped")
NO_FAULT = "none"

JOB = """\
import ctypes, os, signal, threading, time

if os.environ["LAUNCHER"] == "torchrun":
    import torch
    import torch.distributed as dist
    dist.init_process_group("gloo")
    rank, data = dist.get_rank(), torch.ones(4)
else:
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    rank, data = int(os.environ["OMPI_COMM_WORLD_RANK"]), (ctypes.c_double * 4)()
    world, number, plus = (
        ctypes.byref(ctypes.c_char.in_dll(mpi, name))
        for name in ("ompi_mpi_comm_world", "ompi_mpi_double", "ompi_mpi_op_sum")
    )

def average():
    if os.environ["LAUNCHER"] == "torchrun":
        dist.all_reduce(data)
    else:
        mpi.MPI_Allreduce(data, (ctypes.c_double * 4)(), 4, number, plus, world)

def wait_for_all():
    if os.environ["LAUNCHER"] == "torchrun":
        dist.barrier()
    else:
        mpi.MPI_Barrier(world)

def load():
    time.sleep(1000)

def follow():
    os.read(os.pipe()[0], 1)

def compute():
    while True:
        pass

def save():
    lock = threading.Lock()
    with lock:
        lock.acquire()

def fail(fault):
    if fault == "stopped":
        os.kill(os.getpid(), signal.SIGSTOP)
    wrong = {"loader": load, "lock": save, "loop": compute, "pipe": follow}
    wrong.get(fault, wait_for_all)()

def train():
    for step in range(6):
        average()
        if step == int(os.environ["STEP"]):
            open("/tmp/ready", "w").close()
            if os.environ["FAULT"] == "none":
                time.sleep(float(os.environ["SLOW"]))
            elif rank == int(os.environ["FAULTY"]):
                fail(os.environ["FAULT"])

average()
train()
os.write(1, b"trained\\n")
if os.environ["LAUNCHER"] == "mpi":
    mpi.MPI_Finalize()
"""
_INSIDE = """\
mount -t tmpfs tmpfs {folder} && cd {folder} && mkdir up work system || exit 1
mount -t overlay overlay -o lowerdir={root},upperdir=up,workdir=work system || exit 1
mount --rbind /dev system/dev; mount -t proc proc system/proc; mount -t tmpfs tmpfs system/tmp
cp {job} system/tmp/job.py
export PATH=/usr/bin:/bin HOME=/root GLOO_SOCKET_IFNAME=lo OMP_NUM_THREADS=1
until test -e system/tmp/ready; do echo .; sleep 1; done &
unset PYTHONPATH BASH_ENV LD_LIBRARY_PATH
exec /usr/sbin/chroot system {command}
"""
_TORCHRUN = (
    "python3 -m torch.distributed.run --nnodes 2 --node_rank $GPUCTL_NODE_RANK --nproc_per_node 2"
    " --monitor_interval 1 --master_addr 127.0.0.1 --master_port {port} /tmp/job.py"
)
_MPIRUN = (
    "mpirun --allow-run-as-root --oversubscribe --mca btl self,vader -np 4 python3 -u /tmp/job.py"
)


class Fault(NamedTuple):
    """A fault of one rank in one job; `kind` is NO_FAULT in a healthy one."""

    launcher: str
    kind: str
    rank: int
    step: int


class Answer(NamedTuple):
    """The verdict on a fault, empty without one, and the seconds that it took."""

    fault: Fault
    text: str
    seconds: float

    @property
    def is_right(self) -> bool:
        if self.fault.kind == NO_FAULT:
            return not self.text
        return f": rank {self.fault.rank} (" in self.text


def plan_of(fault: Fault, root: Path, folder: Path, port: int) -> LaunchPlan:
    job = folder / "job.py"
    job.write_text(JOB)
    command = _TORCHRUN.format(port=port) if fault.launcher == "torchrun" else _MPIRUN
    system = folder / "system-$GPUCTL_NODE_RANK"
    inside = _INSIDE.format(folder=system, root=root, job=job, command=command)
    env = {
        "LAUNCHER": fault.launcher,
        "FAULT": fault.kind,
        "FAULTY": str(fault.rank),
        "STEP": str(fault.step),
        "SLOW": str(AFTER_S / 2),
    }
    hang = {"after": f"{AFTER_S}s", "action": "stop"}
    nodes = 2 if fault.launcher == "torchrun" else 1
    commands = (f"mkdir {system}", f"unshare --mount bash -c '{inside}'")
    run = make_run(nodes=nodes, commands=commands, env=env, hang=hang, max_duration="2m")
    return launch_plan(run, make_inventory(nodes), new_run_id("job"))


def answer(fault: Fault, root: Path, port: int) -> Answer:
    """Run a job with the fault, and return the verdict."""
    folder = Path(tempfile.mkdtemp(prefix="gpuctl-"))
    with zipfile.ZipFile(BytesIO(agent_bundle(with_stacks=True).data)) as archive:
        archive.extractall(folder / "agent.pyz")
    cluster = LocalCluster(folder)
    try:
        verdict = asyncio.run(cluster.supervisor(plan_of(fault, root, folder, port)).run())
        events = cluster.events()
    finally:
        cluster.journal.close()
        end_jobs(folder)
        shutil.rmtree(folder, ignore_errors=True)
    judged = [event for event in events if isinstance(event, HangJudged)]
    if not judged:
        return Answer(fault, "" if verdict.status == "done" else f"no hang: {verdict.reason}", 0)
    heard = [
        each.time for each in events if isinstance(each, Output) and each.time < judged[0].time
    ]
    return Answer(fault, judged[0].text, judged[0].time - max(heard) - AFTER_S)


def faults_of(seed: int, number: int, healthy: int) -> list[Fault]:
    chance = random.Random(seed)  # noqa: S311  repeatable
    kinds = [FAULTS[place % len(FAULTS)] for place in range(number)]
    kinds += [NO_FAULT] * healthy
    return [
        Fault(
            chance.choice(("torchrun", "mpi")), kind, chance.randrange(RANKS), chance.randrange(6)
        )
        for kind in kinds
    ]


def table(answers: list[Answer]) -> list[str]:
    lines = ["| fault | planted | right rank | median seconds |", "| --- | --- | --- | --- |"]
    planted = [each for each in answers if each.fault.kind != NO_FAULT]
    for kind in (*FAULTS, "all"):
        those = [each for each in planted if kind in (each.fault.kind, "all")]
        if those:
            right = sum(each.is_right for each in those)
            seconds = median(each.seconds for each in those)
            lines.append(f"| {kind} | {len(those)} | {right} | {seconds:.1f} |")
    healthy = [each for each in answers if each.fault.kind == NO_FAULT]
    alarms = sum(not each.is_right for each in healthy)
    return [*lines, "", f"{alarms} false alarms in {len(healthy)} healthy jobs"]


def main() -> None:
    parser = argparse.ArgumentParser(description="Plant faults, and count the right verdicts.")
    parser.add_argument("root", type=Path, help="a system with torch and Open MPI")
    parser.add_argument("--faults", type=int, default=24)
    parser.add_argument("--healthy", type=int, default=6)
    parser.add_argument("--seed", type=int, default=7)
    options = parser.parse_args()
    os.environ["PATH"] = f"{TOOLS}:{os.environ['PATH']}"
    answers = []
    for number, fault in enumerate(faults_of(options.seed, options.faults, options.healthy)):
        answers.append(answer(fault, options.root, 29700 + number))
        mark = "right" if answers[-1].is_right else "WRONG"
        print(f"{mark} {' '.join(map(str, fault))}: {answers[-1].text}", flush=True)
    print("\n".join(["", *table(answers)]))


if __name__ == "__main__":
    main()
