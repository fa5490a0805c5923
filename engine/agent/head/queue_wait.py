"""A run's beginning: its first event, and its wait while other runs have its nodes."""

from __future__ import annotations

from typing import Any

from engine.agent.head.queue import Dropped, Place, Queue
from engine.agent.head.recorder import Recorder
from engine.agent.journal.journal import Journal
from engine.agent.journal.run_secrets_file import boot_id
from engine.contract.head_events import RunFinished, RunNode, RunQueued
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import STOPPED

LOOK_S = 0.5
"""Seconds after which a run reads the queue again, a small file."""


_FROM_PLAN = (
    "run_id",
    "name",
    "cluster",
    "on_stop",
    "stop_grace_s",
    "outputs",
    "saved",
    "ports",
    "owner",
)


def begin_fields(plan: LaunchPlan, journal: Journal) -> dict[str, Any]:
    """Return what the first event of a run has, without environment and scripts.

    It is for clients, and `clock` for the next supervisor, if this one is killed.
    """
    return {
        **{key: getattr(plan, key) for key in _FROM_PLAN},
        "boot_id": boot_id(),
        "clock": journal.clock.offset,
        "notifies": bool(plan.notify),
        "nodes": run_nodes(plan),
    }


def run_nodes(plan: LaunchPlan) -> tuple[RunNode, ...]:
    """Return the nodes of the plan, without what each of them executes."""
    return tuple(RunNode(node.rank, node.name, node.private_ip, node.role) for node in plan.nodes)


async def wait_in_queue(recorder: Recorder, queue: Queue) -> bool:
    """Wait until the run has its nodes, and return True; return False if it has ended before.

    Each change of its place is in the journal, as `run_queued`.
    """
    state, shown = recorder.state, None
    while not state.is_finished:
        place: Place | None
        try:
            place = queue.try_start(state.plan.run_id)
        except Dropped:
            leave_queue(recorder, "dropped from the queue")
            return False
        except OSError:  # the head's disk is full: the run waits for room too
            place = shown or (1, ())
        if place is None:
            return True
        if place != shown:
            shown, (number, ahead) = place, place
            fields = begin_fields(state.plan, recorder.journal)
            recorder.record(RunQueued(**fields, place=number, ahead=ahead))
        await recorder.wait_until(lambda: state.is_finished, LOOK_S)
    return False


def leave_queue(recorder: Recorder, reason: str) -> None:
    """End the run as `stopped`: it never starts."""
    recorder.record(RunFinished("stopped", STOPPED, None, reason))
