"""The state of a run: a fold of its journal's events, without clock, files or processes.

The supervisor adds each event as it writes it, and acts on what follows. The next supervisor adds
the events of the journal, and so has the same state. Property tests try startup order, stop
criteria, failures and retries with every order of events.

A run may go on with fewer nodes: its plan then has the texts that the client made for that number.
"""

from __future__ import annotations

import contextlib
import json
import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path

from engine.agent.head.states import (
    RUN,
    Action,
    Finish,
    Nodes,
    NodeState,
    PassOn,
    Start,
    State,
    Stop,
    next_phase,
)
from engine.agent.head.verdicts import ENDS_RUN, judge, judge_missing, judge_run
from engine.agent.journal.journal import NOT_STORED
from engine.agent.journal.journal_file import JournalReader
from engine.agent.node.evidence import RANKS
from engine.contract.codec import map_texts
from engine.contract.event import Event, NodeEvent
from engine.contract.events import decode
from engine.contract.head_events import (
    AttemptEnded,
    AttemptStarted,
    Evidence,
    LeaseEnding,
    NodesHealed,
    NodesLeftOut,
    OutputDropped,
    OutputJudged,
    RunQueued,
    RunStarted,
    WaitingForNodes,
)
from engine.contract.node_plan import NodePlan
from engine.contract.plan import LaunchPlan, RetryPlan, Size
from engine.contract.verdict import Verdict
from engine.contract.worker_events import ClockSet, DiskFull, NodeInterrupted, NoticeGiven, Output

Decision = tuple[State, tuple[Action, ...]]
NOTICES = (NodeInterrupted, LeaseEnding, NoticeGiven)
"""The events that are notices to the job."""


def decide(state: State, event: Event) -> Decision:
    """Return the state after `event`, and the actions that follow from it, in order."""
    before, state = state, state.move(event.kind)
    if state.phase in ("queued", "finished"):
        return state, ()
    if before.verdict is not None and isinstance(event, ENDS_RUN):
        return replace(state, ending=state.ending or judge_run(state, event)), ()
    if state.is_over:
        return state, ()
    if isinstance(event, NoticeGiven) and event.notice == "stop":
        state = replace(state, will_stop=True)
    state = judge(_advance(state, event), event, state)
    state, actions = _stop_all(state) if state.verdict else _start_due(state)
    if state.nodes.count("gone") == len(state.nodes):
        return judge_missing(state.move("all_gone")), (*actions, Finish())
    return state, actions


def _advance(state: State, event: Event) -> State:
    """Return the state with the node of `event` as the event leaves it."""
    if not isinstance(event, NodeEvent):
        return state
    node = state.nodes[event.rank]
    after = node.add(event)
    if after is node:
        return state
    return replace(state, nodes=state.nodes.replace_node(event.rank, after))


def _start_due(state: State) -> Decision:
    """Start the nodes whose turn has come; none before every node is prepared."""
    if state.nodes.count("launching"):
        return state, ()
    starts: tuple[Action, ...] = ()
    if state.phase == "preparing":
        state, starts = _start(state.move("all_prepared"), state.first_wave)
    # All that have started are of the first wave: they are ready, or have ended.
    if state.phase == "starting" and not state.nodes.count("started"):
        state, more = _start(state.move("first_ready"), range(len(state.nodes)))
        starts += more
    return state, starts


def _start(state: State, wave: range) -> Decision:
    """Start the nodes of the wave that have not started."""
    due = [rank for rank in wave if state.nodes[rank].phase == "prepared"]
    nodes = list(state.nodes)
    for rank in due:
        nodes[rank] = nodes[rank].move("start")
    return replace(state, nodes=Nodes.of(tuple(nodes))), tuple(Start(rank) for rank in due)


def _stop_all(state: State) -> Decision:
    """Stop every node that has not ended, once per attempt."""
    if state.phase == "stopping":
        return state, ()
    due = [rank for rank, node in enumerate(state.nodes) if not node.has_ended]
    nodes = list(state.nodes)
    for rank in due:
        nodes[rank] = replace(nodes[rank], stop_asked=True)
    state = replace(state.move("verdict"), nodes=Nodes.of(tuple(nodes)))
    return state, tuple(Stop(rank) for rank in due)


@dataclass(frozen=True)
class Again:
    """The next attempt starts in `seconds`."""

    seconds: int


@dataclass(frozen=True)
class WaitForNodes:
    """The next attempt starts when the nodes `ranks` are back, which may take `seconds`."""

    ranks: tuple[int, ...]
    seconds: int


def next_step(
    number: int,
    verdict: Verdict,
    attempt: State,
    policy: RetryPlan | None,
    most_backoff_s: int,
) -> Again | WaitForNodes | None:
    """Return what follows on the attempt; None if its verdict is that of the run.

    `number` counts attempts from 1 on; `policy` is None if the run is not retried. No pause
    is longer than `most_backoff_s`, unless the policy's first one is.
    """
    if policy is None or verdict.status != "failed" or not verdict.cause:
        return None
    # A rank that loses another one often fails before the supervisor knows that a node is lost, so
    # a lost node is another cause than that of the verdict.
    causes = {verdict.cause}
    causes |= {"node-lost"} if attempt.lost - attempt.reclaimed else set()
    causes |= {"preemption"} if attempt.reclaimed else set()
    if number >= policy.attempts or causes.isdisjoint(policy.on):
        return None
    missing = attempt.lost | attempt.reclaimed
    if missing:
        return WaitForNodes(tuple(sorted(missing)), policy.node_wait_s)
    longest = max(policy.backoff_s, most_backoff_s)
    return Again(min(policy.backoff_s << min(number - 1, 30), longest))


def replace_addresses(plan: LaunchPlan, addresses: Mapping[str, str]) -> LaunchPlan:
    """Return the plan with new private addresses of the nodes that `addresses` names.

    An address is replaced wherever the plan has it: hostfiles, environment, scripts.
    """
    known = {node.name: node.private_ip for node in plan.nodes}
    changed = {
        known[name]: address
        for name, address in addresses.items()
        if known.get(name, address) != address
    }
    if not changed:
        return plan
    either = "|".join(map(re.escape, changed))
    # Neither a part of a longer address (10.0.0.1 in 10.0.0.12) nor of a longer number with points.
    pattern = re.compile(rf"(?<![0-9.])(?:{either})(?![0-9]|\.[0-9])")

    return map_texts(plan, lambda text: pattern.sub(lambda address: changed[address[0]], text))


STAND_IN = "240.71"
"""The first half of stand-in addresses: a part of IPv4 that no machine has (RFC 1112, class E)."""
_ADDRESS = re.compile(rf"(?<![0-9.]){re.escape(STAND_IN)}\.([0-9]+)\.([0-9]+)(?![0-9]|\.[0-9])")


def stand_in_address(rank: int) -> str:
    """Return the stand-in for the address of the node with this rank."""
    return f"{STAND_IN}.{rank >> 8}.{rank & 255}"


def plan_on(plan: LaunchPlan, names: Collection[str]) -> LaunchPlan:
    """Return the plan of the run on these of its nodes, in the order of their ranks.

    The plan has a size for their number, or `names` are all nodes.
    """
    chosen = [node for node in plan.nodes if node.name in names]
    if len(chosen) == len(plan.nodes):
        return plan
    planned = next(size for size in plan.sizes if len(size.nodes) == len(chosen))
    ips = [node.private_ip for node in chosen]

    def fill(text: str) -> str:
        return _ADDRESS.sub(lambda part: ips[int(part[1]) << 8 | int(part[2])], text)

    size = map_texts(planned, fill)
    return replace(
        plan,
        network=size.network,
        startup_order=size.startup_order,
        stop_criteria=size.stop_criteria,
        ready=size.ready,
        nodes=tuple(_node_plan(node, rank, size) for rank, node in enumerate(chosen)),
    )


def _node_plan(node: NodePlan, rank: int, size: Size) -> NodePlan:
    """Return the node's part: what all nodes have in common, and its own."""
    common, own = size.common, size.nodes[rank]
    return NodePlan(
        rank=rank,
        name=node.name,
        private_ip=node.private_ip,
        role=own.role,
        environment={**common.environment, **own.environment, "GPUCTL_NODE_NAME": node.name},
        script=common.script if own.script is None else own.script,
        files={**common.files, **own.files},
        secrets={**common.secrets, **own.secrets},
        processes=own.processes,
    )


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
    events that it did not store. `notices` are those to its job, of which some are about nodes of
    the last attempt.
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
        self.notices: list[Event] = []
        self._begin_attempt("queued")

    def _begin_attempt(self, phase: str) -> None:
        self.attempt = first_state(self.plan, phase)
        self.received: dict[int, int] = {}
        self.examined: set[int] = set()
        self.malformed: set[tuple[int, str]] = set()
        self.between: dict[type[Event], Event] = {}
        self.notices = [each for each in self.notices if getattr(each, "rank", None) is None]

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
        if isinstance(event, NOTICES):
            self.notices.append(event)
            actions = (PassOn(event), *actions)
        return actions

    def _count(self, event: Event) -> None:
        """Note the numbers of the workers' events that the event has."""
        if (
            isinstance(event, (NodeEvent, ClockSet, NoticeGiven))
            and event.sequence
            and event.rank is not None
        ):
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
        elif isinstance(event, Evidence) and event.source != RANKS:
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
