"""One module per `type` of run: what it makes of a run on its nodes. Pure, without any I/O."""

from collections.abc import Callable, Mapping
from typing import Any

from engine.modes import ddp, deepspeed, horovod, mpi, nccl_tests, ps_worker, ray, task, torchrun
from engine.modes.job import Job, Launch

MODES: Mapping[str, Callable[[Job[Any]], Launch]] = {
    "task": task.launch,
    "mpi": mpi.launch,
    "nccl-tests": nccl_tests.launch,
    "ddp": ddp.launch,
    "torchrun": torchrun.launch,
    "horovod": horovod.launch,
    "deepspeed": deepspeed.launch,
    "ps-worker": ps_worker.launch,
    "ray": ray.launch,
}
"""By the run's type, in the order of the documentation."""
