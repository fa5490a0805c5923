"""The supervisor's memory, rebuilt from its journal: pure functions of the journal's events.

Every event that changes the state of a run is in the journal before the supervisor acts on it. So
the next supervisor gets the same state by the same decisions.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from engine.agent.head.decisions import DECISIVE, decide
from engine.agent.head.nodes import Nodes, NodeState
from engine.agent.head.resizing import plan_on
from engine.agent.head.retry import replace_addresses
from engine.agent.head.states import State, is_over
from engine.agent.journal.journal import NOT_STORED
from engine.agent.journal.journal_file import JournalReader
from engine.contract.events import (
    AttemptEnded,
    AttemptStarted,
    ClockSet,
    DiskFull,
    Event,
    Evidence,
    NodeEvent,
    NodeExited,
    NodeLost,
    NodesHealed,
    NodesLeftOut,
    NodeStopped,
    NodeUnreachable,
    Output,
    OutputDropped,
    OutputJudged,
    RunFinished,
    RunQueued,
    RunStarted,
    WaitingForNodes,
    decode,
)
from engine.contract.plan import LaunchPlan


def first_state(plan: LaunchPlan) -> State:
    """Return the state in which the run with this plan begins."""
    nodes = tuple(NodeState(n.name, n.role, n.processes) for n in plan.nodes)
    return State(plan.startup_order, plan.stop_criteria, Nodes.of(nodes))


class Recorded:
    """A run according to its journal. Give it every event, in order (`add`).

    Of the last attempt: `state` is the state after these events. `received` are the numbers of the
    last events from the workers, by rank. `ended` are ranks with a recorded end, `lost` the lost
    ones with the reason, `examined` those with evidence. `malformed` are ranks and the kinds of
    their events that could not be read. `attempt_began` is its time, None before
    it, and `number` counts from 1 on. After its end, `between` are the events about the next
    attempt by their class, and `pending` the events since.
    Of the run: `clock` is the offset of its RunClock, None before its first event. `whole` is the
    plan with all nodes and their present addresses, `plan` that of the last attempt. `healed` are
    nodes that were made again since that attempt began. `began` is the time of the run's
    beginning, None before it. `write_error` is why the head's disk did not store
    all lines, empty if it did, and `missing` the number of the workers' events that it did not
    store.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = self.whole = plan
        self.healed: set[str] = set()
        self.number = 1
        self.attempt_began: float | None = None
        self.began: float | None = None
        self.clock: float | None = None
        self.is_finished = False
        self.write_error = ""
        self.missing = 0
        self._begin_attempt()

    def _begin_attempt(self) -> None:
        self.state = first_state(self.plan)
        self.received: dict[int, int] = {}
        self.ended: set[int] = set()
        self.lost: dict[int, str] = {}
        self.examined: set[int] = set()
        self.malformed: set[tuple[int, str]] = set()
        self.between: dict[type[Event], Event] = {}
        self.pending: list[Event] = []

    def _add_attempt(self, event: AttemptStarted) -> None:
        """Begin the next attempt, on the nodes that were made again meanwhile."""
        names = {node.name for node in event.nodes or self.whole.nodes}
        self.plan = plan_on(self.whole, names)
        self.healed.clear()
        self._begin_attempt()
        self.number, self.attempt_began = event.number, event.time

    def _heal(self, addresses: dict[str, str]) -> None:
        """Note the new machines; the next attempt uses them, and the first one if it comes."""
        self.whole = replace_addresses(self.whole, addresses)
        if self.attempt_began is None:
            self.plan = self.whole
        present = set() if is_over(self.state) else {node.name for node in self.plan.nodes}
        self.healed |= addresses.keys() - present

    def _count(self, event: Event) -> None:
        """Note the numbers of the workers' events that the event has."""
        if isinstance(event, (NodeEvent, ClockSet)) and event.sequence and event.rank is not None:
            self.missing += event.sequence - self.received.get(event.rank, 0) - 1
            self.received[event.rank] = event.sequence
        elif isinstance(event, OutputDropped):  # removed, and not missing
            for removed in event.ranks:
                if removed.sequence:
                    self.received[removed.rank] = removed.sequence

    def add(self, event: Event) -> None:
        """Take the next event into account."""
        self._count(event)
        if isinstance(event, Output):  # of which a journal may have millions
            return
        if isinstance(event, DECISIVE):
            if is_over(self.state):
                self.pending.append(event)
            else:
                self.state, _ = decide(self.state, event)
        if isinstance(event, NodesHealed):
            self._heal(event.addresses)
        elif isinstance(event, (NodeExited, NodeStopped, NodeLost)):
            self.ended.add(event.rank)
        if isinstance(event, (NodeLost, NodeUnreachable)):
            self.lost[event.rank] = event.reason
        elif isinstance(event, Evidence):
            self.examined.add(event.rank)
        elif isinstance(event, OutputJudged) and event.malformed:
            self.malformed.add((event.rank, event.malformed))
        elif isinstance(event, DiskFull) and event.text.startswith(NOT_STORED):
            self.write_error = event.text.removeprefix(NOT_STORED)
        self._add_step(event)

    def _add_step(self, event: Event) -> None:
        """Take the beginning or end of the run or an attempt into account."""
        if isinstance(event, (RunQueued, RunStarted)):
            self.clock = event.clock
        if isinstance(event, RunStarted):
            self.began = self.attempt_began = event.time
        elif isinstance(event, (AttemptEnded, WaitingForNodes, NodesLeftOut)):
            self.between[type(event)] = event
        elif isinstance(event, AttemptStarted):
            self._add_attempt(event)
        elif isinstance(event, RunFinished):
            self.is_finished = True


def journal_events(path: Path) -> Iterator[Event]:
    """Yield the events of the journal; none if there is no journal."""
    with contextlib.closing(JournalReader(path)) as journal:
        for line in journal.read():
            event = None
            with contextlib.suppress(ValueError):  # damaged by the disk
                event = decode(json.loads(line))
            if event is not None:
                yield event
