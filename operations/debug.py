"""What the ranks of a run do now, and a command for the process of one rank."""

import shlex
from collections.abc import Sequence
from dataclasses import dataclass

from config.command_text import command_text
from config.errors import InputError
from config.event_loop import run_in_loop
from config.number_ranges import fold_numbers
from engine.record.history import RunRecord
from engine.session.bundle import agent_bundle
from engine.session.head import find_run
from engine.session.ranks import RunProcesses, ShownProcess, run_processes
from nodes.inventory import Inventory
from operations import login
from operations.chosen_target import ChosenTarget
from operations.run_search import find_run_with_cluster
from operations.watcher import LoggingWatcher, Watcher

__all__ = ["RunProcesses", "ShownProcess"]

PID = "{pid}"
"""The part of a shell line that becomes the process id."""


@dataclass(frozen=True)
class Examined:
    """A run, its cluster's inventory, the names of its nodes by their ranks, its processes."""

    record: RunRecord
    inventory: Inventory
    names: tuple[str, ...]
    seen: RunProcesses

    def of_rank(self, rank: int) -> list[ShownProcess]:
        """Return the rank's processes; those of the node with this rank if no launcher gave ranks.

        Raises InputError if there is none.
        """
        processes, run = self.seen.processes, self.record.run_id
        ranks = {process.rank: process for process in processes if process.rank is not None}
        if not ranks:
            if rank >= len(self.names):
                raise InputError(
                    f"run {run} has no rank {rank}",
                    f"it has {len(self.names)} nodes, and no launcher gave it other ranks",
                )
            node = self.names[rank]
            if of_node := [process for process in processes if process.node == node]:
                return of_node
            why = self.seen.silent.get(node, f"run {run} has no process on {node}")
            raise InputError(why, f"{command_text('gpuctl logs {}', run)} has what it printed")
        if rank in ranks:
            return [ranks[rank]]
        known = f"those with one are {fold_numbers(sorted(ranks), ', ')}"
        raise InputError(f"rank {rank} of run {run} has no process", known)


def examine(chosen: ChosenTarget, run: str, *, watcher: Watcher = LoggingWatcher()) -> Examined:
    """Examine the run's processes on all its nodes; the job is not paused.

    Raises InputError for an unknown run, and for one that is over.
    """
    record, inventory = find_run_with_cluster(chosen, run, watcher=watcher)
    if inventory is None:
        report = command_text("gpuctl report {}", record.run_id)
        raise InputError(
            f"run {record.run_id} is over: it has no process",
            f"{report} has what its nodes showed at its end",
        )
    names, seen = run_in_loop(_examine(inventory, record.run_id))
    return Examined(record, inventory, names, seen)


async def _examine(inventory: Inventory, run_id: str) -> tuple[tuple[str, ...], RunProcesses]:
    first = await find_run(inventory, run_id)
    names = tuple(node.name for node in (first or inventory).nodes)
    return names, await run_processes(inventory, run_id, names)


def debug_command(examined: Examined, rank: int, line: str, ports: Sequence[int] = ()) -> list[str]:
    """Return the command of OpenSSH that runs the shell line in a terminal on the rank's node.

    `{pid}` in it becomes the id of the rank's process, and py-spy is on its PATH. `ports` of this
    machine lead to the same ports of the node. Raises InputError if the rank is not one process.
    """
    processes = examined.of_rank(rank)
    process, *others = processes
    if others:
        pids = ", ".join(str(each.pid) for each in processes)
        on_node = command_text(
            "gpuctl exec -it {} --node {} -- gdb -p {}",
            examined.record.cluster,
            process.node,
            process.pid,
        )
        raise InputError(
            f"run {examined.record.run_id} has {len(processes)} processes on {process.node},"
            f" and no launcher gave them ranks: {pids}",
            f"name one by its pid, as in {on_node}",
        )
    programs = shlex.quote(agent_bundle(with_stacks=True).path(examined.inventory))
    options = ["-t", *(f"-L{port}:127.0.0.1:{port}" for port in ports)]
    line = f'PATH="$PATH":{programs}; {line.replace(PID, str(process.pid))}'
    return login.ssh_to(examined.inventory, process.node, [line], options)
