"""The entry of Slurm's commands: each imports its module alone."""

from __future__ import annotations

import sys
from importlib import import_module

_MODULES = {
    "sbatch": "batch",
    "srun": "srun",
    "scontrol": "scontrol",
    "sbcast": "srun",
    "step": "task_host",
}


def main(words: list[str]) -> int:
    """Run a command and return its exit status."""
    name = words[0]
    module = import_module(f"engine.agent.slurm.{_MODULES[name]}")
    try:
        status: int = getattr(module, name)(words[1:])
    except ValueError as error:
        sys.stderr.write(f"{name}: error: {error}\n")
        status = 1
    return status
