"""The supervisor's memory, rebuilt from its journal: pure functions of the journal's events.

Every event that changes the state of a run is in the journal before the supervisor acts on it. So
the next supervisor gets the same state by the same decisions.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Callable, Iterator
from pathlib import Path

from engine.agent.decisions import decide
from engine.agent.journal import NOT_STORED, Message
from engine.agent.journal_file import DROPPED, JournalReader
from engine.agent.nodes import Nodes, NodeState
from engine.agent.output_reader import NOT_JUDGED
from engine.agent.resizing import plan_on
from engine.agent.retry import Healed, replace_addresses
from engine.agent.states import (
    DurationOver,
    Event,
    Exited,
    Gone,
    HeadEnding,
    Interrupted,
    Lost,
    NetworkFault,
    NotPrepared,
    NotReady,
    OutputStopped,
    Prepared,
    RankStarted,
    Ready,
    StartupOver,
    State,
    StopAsked,
    is_over,
)
from engine.contract.plan import LaunchPlan

_NOT_JUDGED = re.compile(
    rb'\{"kind": "output", "time": [\d.]+, "sequence": (\d+), "stream": "[a-z]+", "text": ".*"'
    rb', "ends_line": true, "offset": \d+, "rank": (\d+)\}\n'
)
"""An event of output as `Journal` writes it, without `judged` (output_reader.py)."""


def first_state(plan: LaunchPlan) -> State:
    """Return the state in which the run with this plan begins."""
    nodes = tuple(NodeState(n.name, n.role, n.processes) for n in plan.nodes)
    return State(plan.startup_order, plan.stop_criteria, Nodes.of(nodes))


def _exit(line: Message) -> Event | None:
    """Return the end of a job; None for a `node_stopped` of a job that never began."""
    return Exited(line["rank"], line["exit_code"]) if "exit_code" in line else None


def _network_fault(line: Message) -> Event | None:
    return NetworkFault(line["rank"], line["text"]) if line["level"] == "fault" else None


_EVENTS: dict[str, Callable[[Message], Event | None]] = {
    "node_prepared": lambda line: Prepared(line["rank"]),
    "node_not_prepared": lambda line: NotPrepared(line["rank"], line["reason"]),
    "node_ready": lambda line: Ready(line["rank"]),
    "node_not_ready": lambda line: NotReady(line["rank"], line["reason"]),
    "rank_started": lambda line: RankStarted(line["rank"], line["process"], line["size"]),
    "network_seen": _network_fault,
    "node_interrupted": lambda line: Interrupted(line["rank"], line["action"], line["at"]),
    "node_exited": _exit,
    "node_stopped": _exit,
    "node_lost": lambda line: Lost(line["rank"], line.get("symptom") or line["reason"]),
    "node_unreachable": lambda line: Lost(line["rank"], f"cannot be reached: {line['reason']}"),
    "node_gone": lambda line: Gone(line["rank"], line["reason"]),
    "stop_asked": lambda line: StopAsked(line["reason"]),
    "duration_over": lambda line: DurationOver(line["seconds"]),
    "head_ending": lambda line: HeadEnding(line.get("head_rank", 0)),
    "output_stopped": lambda line: OutputStopped(line["seconds"]),
    "startup_over": lambda line: StartupOver(line["seconds"]),
    "nodes_healed": lambda line: Healed(line["addresses"]),
}


def event_of(line: Message) -> Event | None:
    """Return the event of the state machine that a line of the journal has; None without one."""
    make = _EVENTS.get(line["kind"])
    return make(line) if make else None


class Recorded:
    """A run according to its journal. Give it every line, in order (`add`).

    Of the last attempt: `state` is the state after these lines. `received` are the numbers of the
    last events from the workers, by rank. `ended` are ranks with a recorded end, `lost` the lost
    ones with the reason, `examined` those with evidence. `attempt_began` is its time, None before
    it, and `number` counts from 1 on. After its end, `between` are the lines about the next
    attempt by their kind, and `pending` the events since.
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
        self.between: dict[str, Message] = {}
        self.pending: list[Event] = []

    def _add_attempt(self, line: Message) -> None:
        """Begin the next attempt, on the nodes that were made again meanwhile."""
        nodes = line.get("nodes")
        names = {node["name"] for node in nodes} if nodes else {n.name for n in self.whole.nodes}
        self.plan = plan_on(self.whole, names)
        self.healed.clear()
        self._begin_attempt()
        self.number, self.attempt_began = line["number"], line["time"]

    def _heal(self, line: Message) -> None:
        """Note the new machines; the next attempt uses them, and the first one if it comes."""
        self.whole = replace_addresses(self.whole, line["addresses"])
        if self.attempt_began is None:
            self.plan = self.whole
        present = set() if is_over(self.state) else {node.name for node in self.plan.nodes}
        self.healed |= line["addresses"].keys() - present

    def _count(self, line: Message) -> None:
        """Note the numbers of the workers' events that the line has."""
        if "sequence" in line:
            rank = line["rank"]
            self.missing += line["sequence"] - self.received.get(rank, 0) - 1
            self.received[rank] = line["sequence"]
        elif line["kind"] == DROPPED:  # removed, and not missing
            for removed in line["ranks"]:
                if removed["sequence"]:
                    self.received[removed["rank"]] = removed["sequence"]

    def add(self, line: Message) -> None:
        """Take the next line into account."""
        kind, rank = line["kind"], line.get("rank", 0)
        self.clock = line.get("clock", self.clock)
        self._count(line)
        event = event_of(line)
        if event is not None and is_over(self.state):
            self.pending.append(event)
        elif event is not None:
            self.state, _ = decide(self.state, event)
        if kind == "nodes_healed":
            self._heal(line)
        if kind in ("node_exited", "node_stopped", "node_lost"):
            self.ended.add(rank)
        if kind in ("node_lost", "node_unreachable"):
            self.lost[rank] = line["reason"]
        if kind == "evidence":
            self.examined.add(rank)
        if kind == "disk_full" and line["text"].startswith(NOT_STORED):
            self.write_error = line["text"].removeprefix(NOT_STORED)
        self._add_step(line)

    def _add_step(self, line: Message) -> None:
        """Take the beginning or end of the run or an attempt into account."""
        kind = line["kind"]
        if kind == "run_started":
            self.began = self.attempt_began = line["time"]
        elif kind in ("attempt_ended", "waiting_for_nodes", "nodes_left_out"):
            self.between[kind] = line
        elif kind == "attempt_started":
            self._add_attempt(line)
        elif kind == "run_finished":
            self.is_finished = True


def recorded_lines(path: Path) -> Iterator[Message]:
    """Yield the lines of the journal; none if there is no journal.

    Output that nothing follows from is not parsed, only counted (NOT_JUDGED): nodes end their jobs
    if they have no supervisor for two minutes, and a journal may have gigabytes.
    """
    with contextlib.closing(JournalReader(path)) as journal:
        for line in journal.read():
            found = _NOT_JUDGED.fullmatch(line)
            if found and rb"\\" not in line:  # an escaped backslash, perhaps in front of an n
                lines = line.count(rb"\n") + 1
                sequence, rank = int(found[1]), int(found[2])
                yield {"kind": NOT_JUDGED, "rank": rank, "sequence": sequence, "lines": lines}
                continue
            with contextlib.suppress(ValueError):  # damaged by the disk
                yield json.loads(line)
