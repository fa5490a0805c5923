"""One module per `type` of run. Each computes the launch from a run and its nodes, without I/O."""

from collections.abc import Callable, Mapping
from typing import Any

from engine.plan.modes import (
    ddp,
    deepspeed,
    horovod,
    mpirun,
    nccl_tests,
    ps_worker,
    ray,
    task,
    torchrun,
)
from engine.plan.modes.job import Job, Launch

MODES: Mapping[str, Callable[[Job[Any]], Launch]] = {
    "task": task.launch,
    "mpi": mpirun.launch,
    "nccl-tests": nccl_tests.launch,
    "ddp": ddp.launch,
    "torchrun": torchrun.launch,
    "horovod": horovod.launch,
    "deepspeed": deepspeed.launch,
    "ps-worker": ps_worker.launch,
    "ray": ray.launch,
}
"""The function of each type of run, in the order of the documentation."""
