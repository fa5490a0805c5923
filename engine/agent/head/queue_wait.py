"""A run's beginning: its first event, and its wait while other runs have its nodes."""

from __future__ import annotations

import asyncio
import contextlib
from typing import Any

from engine.agent.head.queue import Dropped, Place, Queue
from engine.agent.journal.journal import Journal
from engine.agent.journal.run_secrets_file import boot_id
from engine.contract.events import RunFinished, RunNode, RunQueued
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import STOPPED

LOOK_S = 0.5
"""Seconds after which a run reads the queue again, a small file."""


def begin_fields(plan: LaunchPlan, journal: Journal) -> dict[str, Any]:
    """Return what the first event of a run has, without environment and scripts.

    It is for clients, and `clock` for the next supervisor, if this one is killed.
    """
    return {
        **{key: getattr(plan, key) for key in ("run_id", "name", "cluster", "on_stop")},
        "boot_id": boot_id(),
        "clock": journal.clock.offset,
        "outputs": plan.outputs,
        "saved": plan.saved,
        "notifies": bool(plan.notify),
        "ports": plan.ports,
        "nodes": run_nodes(plan),
    }


def run_nodes(plan: LaunchPlan) -> tuple[RunNode, ...]:
    """Return the nodes of the plan, without what each of them executes."""
    return tuple(RunNode(node.rank, node.name, node.private_ip, node.role) for node in plan.nodes)


class Turn:
    """The wait of one run."""

    def __init__(self, plan: LaunchPlan, queue: Queue, journal: Journal) -> None:
        self._plan, self._queue, self._journal = plan, queue, journal
        self._stopped = asyncio.Event()
        self._reason = ""
        self.is_over = False
        """True once the run has its nodes, or has left the queue."""
        self.was_stopped = False
        """True once the run has ended without its nodes."""

    def stop(self, reason: str = "stopped on request") -> None:
        """Leave the queue: the run ends as `stopped` and never starts."""
        self._reason = reason
        self._stopped.set()

    async def wait(self) -> bool:
        """Wait until the run has its nodes, and return True; return False if it was stopped.

        Each change of its place is in the journal, as `run_queued`, and so is the end of a run that
        was stopped.
        """
        shown: Place | None = None
        while not self._stopped.is_set():
            try:
                found = self._queue.try_start(self._plan.run_id)
            except Dropped:
                self.stop("dropped from the queue")
                break
            except OSError:  # the head's disk is full: the run waits for room too
                found = shown or (1, ())
            if found is None:
                self.is_over = True
                return True
            if found != shown:
                shown = found
                self._report(*found)
            with contextlib.suppress(asyncio.TimeoutError):  # nobody has stopped it: look again
                await asyncio.wait_for(self._stopped.wait(), LOOK_S)
        self.is_over = True
        self._journal.append(RunFinished("stopped", STOPPED, None, self._reason))
        self.was_stopped = True
        return False

    def _report(self, place: int, ahead: tuple[str, ...]) -> None:
        fields = begin_fields(self._plan, self._journal)
        self._journal.append(RunQueued(**fields, place=place, ahead=ahead))
