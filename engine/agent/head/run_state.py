"""The state of a run: a fold of its journal's events, without clock, files or processes.

The supervisor adds each event as it writes it, and acts on what follows. The next supervisor adds
the events of the journal, and so has the same state.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator
from pathlib import Path

from engine.agent.head.decisions import decide
from engine.agent.head.resizing import plan_on
from engine.agent.head.retry import replace_addresses
from engine.agent.head.states import RUN, Action, Nodes, NodeState, State, next_phase
from engine.agent.journal.journal import NOT_STORED
from engine.agent.journal.journal_file import JournalReader
from engine.contract.event import Event, NodeEvent
from engine.contract.events import decode
from engine.contract.head_events import (
    AttemptEnded,
    AttemptStarted,
    Evidence,
    NodesHealed,
    NodesLeftOut,
    OutputDropped,
    OutputJudged,
    RunQueued,
    RunStarted,
    WaitingForNodes,
)
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import ClockSet, DiskFull, Output


def first_state(plan: LaunchPlan, phase: str = "preparing") -> State:
    """Return the state in which an attempt with this plan begins."""
    nodes = tuple(NodeState(n.name, n.role, n.processes) for n in plan.nodes)
    return State(plan.startup_order, plan.stop_criteria, Nodes.of(nodes), phase)


class RunState:
    """A run according to its journal. Give it every event, in order (`add`).

    Of the run: `whole` is the plan with all nodes and their present addresses, `healed` are nodes
    that were made again since the last attempt began, `replaced` those without a part in it that
    come back only as new machines. `began` is the time of the run's beginning, None before it.
    `clock` is the offset of its RunClock, None before its first event. `write_error` is why the
    head's disk did not store all lines, empty if it did, and `missing` the number of the workers'
    events that it did not store.
    Of the last attempt: `plan` is its plan, `number` counts from 1 on, `began_attempt` is its time,
    None before it, and `attempt` has its nodes and the phase of the run. `received` are the numbers
    of the last events from the workers, by rank, `examined` the ranks with evidence, and
    `malformed` ranks and the kinds of their events that could not be read. After its end,
    `between` are the events about the next attempt by their class.
    """

    def __init__(self, plan: LaunchPlan) -> None:
        self.plan = self.whole = plan
        self.healed: set[str] = set()
        self.replaced: set[str] = set()
        self.number = 1
        self.began: float | None = None
        self.began_attempt: float | None = None
        self.clock: float | None = None
        self.write_error = ""
        self.missing = 0
        self._begin_attempt("queued")

    def _begin_attempt(self, phase: str) -> None:
        self.attempt = first_state(self.plan, phase)
        self.received: dict[int, int] = {}
        self.examined: set[int] = set()
        self.malformed: set[tuple[int, str]] = set()
        self.between: dict[type[Event], Event] = {}

    @property
    def is_finished(self) -> bool:
        """Return whether the run's end is recorded."""
        return self.attempt.phase == "finished"

    @property
    def reclaimed(self) -> set[str]:
        """Return the nodes of the last attempt of which AWS reclaims the instances."""
        return {self.plan.nodes[rank].name for rank in self.attempt.reclaimed}

    def add(self, event: Event) -> tuple[Action, ...]:
        """Take the next event into account; return the actions that follow from it, in order."""
        self._count(event)
        if isinstance(event, Output):  # of which a journal may have millions
            return ()
        if isinstance(event, AttemptStarted):
            self._add_attempt(event)
            return ()
        self._note(event)
        self.attempt, actions = decide(self.attempt, event)
        return actions

    def _count(self, event: Event) -> None:
        """Note the numbers of the workers' events that the event has."""
        if isinstance(event, (NodeEvent, ClockSet)) and event.sequence and event.rank is not None:
            self.missing += event.sequence - self.received.get(event.rank, 0) - 1
            self.received[event.rank] = event.sequence
        elif isinstance(event, OutputDropped):  # removed, and not missing
            for removed in event.ranks:
                if removed.sequence:
                    self.received[removed.rank] = removed.sequence

    def _add_attempt(self, event: AttemptStarted) -> None:
        """Begin the next attempt, on the nodes that were made again meanwhile."""
        names = {node.name for node in event.nodes or self.whole.nodes}
        self.replaced = (self.replaced | self.reclaimed) - names
        self.plan = plan_on(self.whole, names)
        self.healed = set()
        self._begin_attempt(next_phase(RUN, self.attempt.phase, event.kind))
        self.number, self.began_attempt = event.number, event.time

    def _note(self, event: Event) -> None:
        """Note what no decision about the present attempt needs."""
        if isinstance(event, (RunQueued, RunStarted)):
            self.clock = event.clock
        if isinstance(event, RunStarted):
            self.began = self.began_attempt = event.time
        elif isinstance(event, NodesHealed):
            self._heal(event.addresses)
        elif isinstance(event, (AttemptEnded, WaitingForNodes, NodesLeftOut)):
            self.between[type(event)] = event
        elif isinstance(event, Evidence):
            self.examined.add(event.rank)
        elif isinstance(event, OutputJudged) and event.malformed:
            self.malformed.add((event.rank, event.malformed))
        elif isinstance(event, DiskFull) and event.text.startswith(NOT_STORED):
            self.write_error = event.text.removeprefix(NOT_STORED)

    def _heal(self, addresses: dict[str, str]) -> None:
        """Note the new machines; the next attempt uses them, and the first one if it comes."""
        self.whole = replace_addresses(self.whole, addresses)
        if self.began is None:
            self.plan = self.whole
        present = set() if self.attempt.is_over else {node.name for node in self.plan.nodes}
        self.healed |= addresses.keys() - present


def journal_events(path: Path) -> Iterator[Event]:
    """Yield the events of the journal; none if there is no journal."""
    with contextlib.closing(JournalReader(path)) as journal:
        for line in journal.read():
            event = None
            with contextlib.suppress(ValueError):  # damaged by the disk
                event = decode(json.loads(line))
            if event is not None:
                yield event
