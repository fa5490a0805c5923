"""The processors and GPUs of a job's nodes that its running steps have.

By default steps do not share resources with other steps (srun(1), `--overlap`): a step waits for
processors and GPUs that another has. Without `--exact` a step takes all processors of its nodes.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any


@dataclass(frozen=True)
class Need:
    """What a step takes on a node: processors, and GPUs; -1 for all GPUs without a share."""

    cpus: int
    gpus: int


@dataclass(frozen=True)
class Free:
    """The processors and GPUs of a node that no step has."""

    cpus: int
    gpus: tuple[int, ...]


class Resources:
    """The file with the shares of running steps, in the job's folder."""

    def __init__(self, folder: Path, nodes: int, cpus: int, gpus: tuple[int, ...]) -> None:
        self._file = folder / "steps.json"
        self._nodes, self._cpus, self._gpus = nodes, cpus, gpus

    def take(
        self, choose: Callable[[list[Free]], Mapping[int, Need] | None]
    ) -> tuple[int, dict[int, tuple[int, ...]]] | None:
        """Return a step's number and its GPUs by node, as `choose` takes them from what is free.

        Return None if `choose` does, because it must wait.
        """
        with self._locked() as state:
            needs = choose([self._free(state, node) for node in range(self._nodes)])
            if needs is None:
                return None
            gpus = {}
            for node, need in needs.items():
                free = self._free(state, node).gpus
                gpus[node] = self._gpus if need.gpus < 0 else free[: need.gpus]
            number = int(state["next"])
            state["next"] = number + 1
            state["steps"][str(os.getpid())] = {
                str(node): [need.cpus, list(gpus[node]) if need.gpus > 0 else []]
                for node, need in needs.items()
            }
            return number, gpus

    def release(self) -> None:
        """Give back what this process has taken."""
        with self._locked() as state:
            state["steps"].pop(str(os.getpid()), None)

    @contextlib.contextmanager
    def _locked(self) -> Iterator[dict[str, Any]]:
        """Yield the state, which nobody else changes meanwhile, without steps that have ended."""
        with self._file.open("a+", encoding="utf-8") as file:
            fcntl.flock(file, fcntl.LOCK_EX)
            file.seek(0)
            text = file.read()
            state: dict[str, Any] = json.loads(text) if text else {"next": 0, "steps": {}}
            state["steps"] = {pid: step for pid, step in state["steps"].items() if _lives(int(pid))}
            yield state
            file.seek(0)
            file.truncate()
            file.write(json.dumps(state))

    def _free(self, state: dict[str, Any], node: int) -> Free:
        shares = [step[str(node)] for step in state["steps"].values() if str(node) in step]
        taken = {gpu for _, gpus in shares for gpu in gpus}
        cpus = self._cpus - sum(int(count) for count, _ in shares)
        return Free(cpus, tuple(gpu for gpu in self._gpus if gpu not in taken))


def _lives(pid: int) -> bool:
    return Path(f"/proc/{pid}").exists()
