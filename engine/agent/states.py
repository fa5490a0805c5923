"""What a run does next: pure decisions over events, without clock, files or processes.

Kept apart from the supervisor so that startup order, stop criteria and failure are one small table
that property tests can drive through every order of events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.agent.nodes import ENDED, Node, Nodes

ENDED_FROM_OUTSIDE = (128 + 15, 128 + 9)  # by SIGTERM or SIGKILL, as a machine that shuts down does
TIMED_OUT = 124  # as timeout(1): a limit of the run file was reached
WRONG_RUN = 1  # not the run that was planned: other ranks, or another network
NODE_FAILED = 125  # a node failed, not the job
STOPPED = 130  # as a shell reports Ctrl-C


class Event:
    """Something happened."""


@dataclass(frozen=True)
class NodeEvent(Event):
    """Something happened on a node."""

    rank: int


class Prepared(NodeEvent):
    """The node's worker answers; nothing of the job runs yet."""


@dataclass(frozen=True)
class NotPrepared(NodeEvent):
    """The node's worker answers, and cannot run the job."""

    reason: str


class Ready(NodeEvent):
    """The node's job runs and is ready for those that wait for it."""


@dataclass(frozen=True)
class NotReady(NodeEvent):
    """The node's job did not become ready in time."""

    reason: str


@dataclass(frozen=True)
class RankStarted(NodeEvent):
    """Rank `process` of a launcher's `size` ranks has begun on the node."""

    process: int
    size: int


@dataclass(frozen=True)
class NetworkFault(NodeEvent):
    """The network is not what the run's preset promises, as the node's output tells."""

    reason: str


@dataclass(frozen=True)
class Exited(NodeEvent):
    """The node's job ended: by itself, or because it was told to."""

    code: int


@dataclass(frozen=True)
class Lost(NodeEvent):
    """The node is lost to the run; `reason` says what was seen of it ("has not answered for …").

    Gone follows, when the supervisor has let go of the node.
    """

    reason: str


@dataclass(frozen=True)
class Gone(NodeEvent):
    """Nothing of the run is left on the node, or the node cannot be reached any more."""

    reason: str


@dataclass(frozen=True)
class Interrupted(NodeEvent):
    """AWS takes the node's spot instance back: `action` (terminate) comes `at` a time, as told."""

    action: str
    at: str


@dataclass(frozen=True)
class HeadEnding(Event):
    """The head, or the supervisor's unit on it, is told to end."""


@dataclass(frozen=True)
class StopAsked(Event):
    """Somebody asked the run to stop."""

    reason: str


@dataclass(frozen=True)
class DurationOver(Event):
    """The run's max_duration is over."""

    seconds: int


class Action:
    """Something has to be done."""


@dataclass(frozen=True)
class Start(Action):
    """Let the node's job begin."""

    rank: int


@dataclass(frozen=True)
class Stop(Action):
    """End the node's job gracefully, and its worker."""

    rank: int


@dataclass(frozen=True)
class Finish(Action):
    """The run is over, and no node holds anything of it."""


@dataclass(frozen=True)
class Verdict:
    """How the run ends, by what happened first; only a `done` can still become a failure.

    `is_jobs_own`: the job ended by itself with a status that is not 0.
    """

    status: str
    exit_code: int
    first_failed_rank: int | None
    reason: str
    is_jobs_own: bool = False


@dataclass(frozen=True)
class State:
    """Everything that decisions depend on; nodes in rank order."""

    startup_order: str
    stop_criteria: str
    nodes: Nodes
    verdict: Verdict | None = None
    waves: int = 0  # of nodes that were started: two at most
    stops_all: bool = False  # every node was told to stop

    @property
    def first_wave(self) -> range:
        """Ranks that start before the others: those that the others wait for."""
        ranks = range(len(self.nodes))
        if self.startup_order == "master-first":
            return ranks[:1]
        if self.startup_order == "workers-first" and len(self.nodes) > 1:
            return ranks[1:]
        return ranks


Decision = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Decision:
    """The state after `event`, and what has to be done because of it, in order."""
    if _is_over(state):
        return state, ()
    state = _judge(_advance(state, event), event, state)
    state, stops = _stop_all(state) if state.verdict else (state, ())
    state, starts = _start_due(state) if not state.verdict else (state, ())
    actions: tuple[Action, ...] = stops + starts
    if _is_over(state):
        state = _judge_missing(state)
        actions += (Finish(),)
    return state, actions


def _is_over(state: State) -> bool:
    return state.nodes.count("gone") == len(state.nodes)


def _advance(state: State, event: Event) -> State:
    """The node of `event` is in its new phase; phases never go back."""
    if isinstance(event, Interrupted):
        notice = f"{event.action} at {event.at}"
        return _with_node(state, event.rank, replace(state.nodes[event.rank], notice=notice))
    if isinstance(event, RankStarted):
        node = state.nodes[event.rank]
        return _with_node(state, event.rank, replace(node, ranks=node.ranks | {event.process}))
    order = ("launching", "prepared", "started", "ready", "exited", "gone")
    if not isinstance(event, (Prepared, Ready, Exited, Gone)):
        return state
    phase = type(event).__name__.lower()
    node = state.nodes[event.rank]
    if order.index(phase) <= order.index(node.phase):
        return state
    return _with_node(state, event.rank, replace(node, phase=phase))


def _judge(state: State, event: Event, before: State) -> State:
    """The verdict that `event` brings; the first one stays, but for a `done` that was none."""
    verdict: Verdict | None = None
    if state.verdict is None or state.verdict.status == "done":
        verdict = _judge_launch(state, event)
    if state.verdict is None and verdict is None and isinstance(event, NodeEvent):
        verdict = _judge_node(state, event, before)
    elif state.verdict is None and verdict is None:
        verdict = _judge_run(state, event)
    return replace(state, verdict=verdict or state.verdict)


def _judge_run(state: State, event: Event) -> Verdict | None:
    if isinstance(event, StopAsked):
        return Verdict("stopped", STOPPED, None, event.reason)
    if isinstance(event, DurationOver):
        return Verdict("failed", TIMED_OUT, None, f"max_duration of {event.seconds} s is over")
    if isinstance(event, HeadEnding):
        stopped = Verdict("stopped", STOPPED, None, "the supervisor was told to end")
        return _taken_back(state, 0) or stopped
    return None


def _judge_node(state: State, event: NodeEvent, before: State) -> Verdict | None:
    name = state.nodes[event.rank].name
    if isinstance(event, NotPrepared):
        reason = f"{name} cannot run the job: {event.reason}"
        return Verdict("failed", NODE_FAILED, event.rank, reason)
    if isinstance(event, NotReady):
        return Verdict("failed", TIMED_OUT, event.rank, f"{name} is not ready: {event.reason}")
    if isinstance(event, Exited):
        return _judge_exit(state, event, before)
    if isinstance(event, (Lost, Gone)) and before.nodes[event.rank].phase != "exited":
        seen = event.reason if isinstance(event, Lost) else f"was lost: {event.reason}"
        lost = Verdict("failed", NODE_FAILED, event.rank, f"{name} {seen}")
        return _taken_back(state, event.rank) or lost
    return None


def _judge_launch(state: State, event: Event) -> Verdict | None:
    """The verdict where a launcher, or the network, does something else than was planned."""
    if isinstance(event, NetworkFault):
        return Verdict("failed", WRONG_RUN, event.rank, event.reason)
    if not isinstance(event, RankStarted) or not state.nodes.processes:
        return None
    node, planned = state.nodes[event.rank], state.nodes.processes
    if event.size != planned:
        reason = f"the launcher started {event.size} ranks, {planned} were planned"
        return Verdict("failed", WRONG_RUN, event.rank, reason)
    if len(node.ranks) > node.processes:
        reason = (
            f"{node.name} got {len(node.ranks)} ranks of {planned}, {node.processes} were planned"
            " there: the launcher ignored the hostfile"
        )
        return Verdict("failed", WRONG_RUN, event.rank, reason)
    return None


def _judge_missing(state: State) -> State:
    """The verdict at the end: a node on which ranks were planned and never began is a failure."""
    assert state.verdict is not None
    if state.verdict.status != "done":
        return state
    for rank, node in enumerate(state.nodes):
        if len(node.ranks) < node.processes:
            reason = f"{node.name} ran {len(node.ranks)} of its {node.processes} ranks"
            return replace(state, verdict=Verdict("failed", WRONG_RUN, rank, reason))
    return state


def _taken_back(state: State, rank: int) -> Verdict | None:
    """The verdict where AWS had said that it takes the node's instance back, else None."""
    node = state.nodes[rank]
    if not node.notice:
        return None
    reason = f"{node.name} was lost: AWS took its spot instance back ({node.notice})"
    return Verdict("failed", NODE_FAILED, rank, reason)


def _judge_exit(state: State, event: Exited, before: State) -> Verdict | None:
    name = state.nodes[event.rank].name
    if event.code in ENDED_FROM_OUTSIDE and state.nodes[event.rank].notice:
        return _taken_back(state, event.rank)
    if event.code != 0:
        reason = f"{name} exited with {event.code}"
        # A rank that misses another often fails before that one's own end is known.
        for other in (node for node in state.nodes if node.notice):
            reason += f"; AWS takes {other.name}'s spot instance back: {other.notice}"
        return Verdict("failed", event.code, event.rank, reason, is_jobs_own=True)
    # As long as a node is prepared and not started, it waits for all that were started before it.
    if state.nodes.count("prepared") and before.nodes[event.rank].phase != "ready":
        reason = f"{name} exited with 0 before it was ready"
        return Verdict("failed", NODE_FAILED, event.rank, reason)
    return _judge_done(state, event)


def _judge_done(state: State, event: Exited) -> Verdict | None:
    if state.stop_criteria == "master-done" and event.rank == 0:
        return Verdict("done", 0, None, "the master is done")
    nodes = state.nodes
    if state.stop_criteria == "workers-done" and nodes.has_workers and not nodes.running_workers:
        return Verdict("done", 0, None, "the workers are done")
    if nodes.count(*ENDED) == len(nodes):
        return Verdict("done", 0, None, "all nodes are done")
    return None


def _start_due(state: State) -> Decision:
    """Starts those whose turn has come; nobody starts before every node answers."""
    if state.nodes.count("launching"):
        return state, ()
    starts: tuple[Action, ...] = ()
    if state.waves == 0:
        state, starts = _start(state, state.first_wave)
    # All that have started are of the first wave: they are ready, or have ended.
    if state.waves == 1 and not state.nodes.count("started"):
        state, more = _start(state, range(len(state.nodes)))
        starts += more
    return state, starts


def _start(state: State, wave: range) -> Decision:
    """Start the next wave: those of its nodes that have not started."""
    due = [rank for rank in wave if state.nodes[rank].phase == "prepared"]
    nodes = list(state.nodes)
    for rank in due:
        nodes[rank] = replace(nodes[rank], phase="started")
    state = replace(state, nodes=Nodes.of(tuple(nodes)), waves=state.waves + 1)
    return state, tuple(Start(rank) for rank in due)


def _stop_all(state: State) -> Decision:
    """Everything that still runs is told to stop, once."""
    if state.stops_all:
        return state, ()
    due = [rank for rank, node in enumerate(state.nodes) if not node.has_ended]
    nodes = list(state.nodes)
    for rank in due:
        nodes[rank] = replace(nodes[rank], stop_asked=True)
    state = replace(state, nodes=Nodes.of(tuple(nodes)), stops_all=True)
    return state, tuple(Stop(rank) for rank in due)


def _with_node(state: State, rank: int, node: Node) -> State:
    return replace(state, nodes=state.nodes.changed(rank, node))
