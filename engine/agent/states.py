"""The decisions of a run: pure functions of its events, without clock, files or processes.

They are separate from the supervisor so that property tests can try startup order, stop criteria
and failures with every order of events.
"""

from __future__ import annotations

from dataclasses import dataclass, replace

from engine.agent.nodes import ENDED, Nodes, NodeState

ENDED_FROM_OUTSIDE = (128 + 15, 128 + 9)  # by SIGTERM or SIGKILL, as in a shutdown
TIMED_OUT = 124  # as timeout(1): a limit of the run file was reached
WRONG_RUN = 1  # the ranks or the network are not as planned, or data are wrong
NODE_FAILED = 125  # a node failed, not the job
STOPPED = 130  # as a shell reports Ctrl-C


class Event:
    """An event of the run."""


@dataclass(frozen=True)
class NodeEvent(Event):
    """An event on a node."""

    rank: int


class Prepared(NodeEvent):
    """The node's worker is ready to start the job."""


@dataclass(frozen=True)
class NotPrepared(NodeEvent):
    """The node's worker cannot run the job."""

    reason: str


class Ready(NodeEvent):
    """The node's job is ready: nodes that wait for it may start."""


@dataclass(frozen=True)
class NotReady(NodeEvent):
    """The node's job did not become ready in time."""

    reason: str


@dataclass(frozen=True)
class RankStarted(NodeEvent):
    """A launcher started rank `process` of `size` on the node."""

    process: int
    size: int


@dataclass(frozen=True)
class NetworkFault(NodeEvent):
    """The node's output shows a network other than the run's preset promises."""

    reason: str


@dataclass(frozen=True)
class Exited(NodeEvent):
    """The node's job ended, by itself or because it was stopped."""

    code: int


@dataclass(frozen=True)
class Lost(NodeEvent):
    """The run has lost the node; `reason` is the symptom ("has not answered for …").

    Gone follows when the supervisor has given up the node's worker.
    """

    reason: str


@dataclass(frozen=True)
class Gone(NodeEvent):
    """No process of the run is left on the node, or the node cannot be reached any more."""

    reason: str


@dataclass(frozen=True)
class Interrupted(NodeEvent):
    """AWS's notice that it reclaims the node's spot instance: `action` (terminate) and its time."""

    action: str
    at: str


@dataclass(frozen=True)
class HeadEnding(Event):
    """The supervisor's unit got SIGTERM, as in a shutdown of the head."""


@dataclass(frozen=True)
class StopAsked(Event):
    """A client stops the run."""

    reason: str


@dataclass(frozen=True)
class DurationOver(Event):
    """The run's max_duration is over."""

    seconds: int


class Action:
    """An action that the supervisor executes."""


@dataclass(frozen=True)
class Start(Action):
    """Start the node's job."""

    rank: int


@dataclass(frozen=True)
class Stop(Action):
    """End the node's job gracefully, and its worker."""

    rank: int


@dataclass(frozen=True)
class Finish(Action):
    """End the run: no process of it is left on any node."""


@dataclass(frozen=True)
class Verdict:
    """The end of the run. The first verdict wins; only `done` may still turn into a failure.

    `is_jobs_own` means that the job ended by itself with a status other than 0.
    """

    status: str
    exit_code: int
    first_failed_rank: int | None
    reason: str
    is_jobs_own: bool = False


@dataclass(frozen=True)
class State:
    """The input of all decisions. `nodes` are in rank order."""

    startup_order: str
    stop_criteria: str
    nodes: Nodes
    verdict: Verdict | None = None
    waves: int = 0  # number of waves of nodes that were started, at most two
    stop_sent: bool = False  # every node got its Stop

    @property
    def first_wave(self) -> range:
        """The ranks that start first; the others wait for them."""
        ranks = range(len(self.nodes))
        if self.startup_order == "master-first":
            return ranks[:1]
        if self.startup_order == "workers-first" and len(self.nodes) > 1:
            return ranks[1:]
        return ranks


Decision = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Decision:
    """Return the state after `event`, and the actions that follow from it, in order."""
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
    """Return the state with the node of `event` in its new phase; phases never go back."""
    if isinstance(event, Interrupted):
        notice = f"{event.action} at {event.at}"
        return _replace_node(state, event.rank, replace(state.nodes[event.rank], notice=notice))
    if isinstance(event, RankStarted):
        node = state.nodes[event.rank]
        return _replace_node(state, event.rank, replace(node, ranks=node.ranks | {event.process}))
    order = ("launching", "prepared", "started", "ready", "exited", "gone")
    if not isinstance(event, (Prepared, Ready, Exited, Gone)):
        return state
    phase = type(event).__name__.lower()
    node = state.nodes[event.rank]
    if order.index(phase) <= order.index(node.phase):
        return state
    return _replace_node(state, event.rank, replace(node, phase=phase))


def _judge(state: State, event: Event, before: State) -> State:
    """Add the verdict of `event`. The first verdict wins; only `done` may turn into a failure."""
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
        stopped = Verdict("stopped", STOPPED, None, "the supervisor got SIGTERM")
        return _interruption_verdict(state, 0) or stopped
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
        return _interruption_verdict(state, event.rank) or lost
    return None


def _judge_launch(state: State, event: Event) -> Verdict | None:
    """Return a verdict if a launcher, or the network, does not do what was planned."""
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
    """Turn `done` into a failure if a node has fewer ranks than planned."""
    assert state.verdict is not None
    if state.verdict.status != "done":
        return state
    for rank, node in enumerate(state.nodes):
        if len(node.ranks) < node.processes:
            reason = f"{node.name} ran {len(node.ranks)} of its {node.processes} ranks"
            return replace(state, verdict=Verdict("failed", WRONG_RUN, rank, reason))
    return state


def _interruption_verdict(state: State, rank: int) -> Verdict | None:
    """Return the verdict for a node whose instance AWS reclaims; None without such a notice."""
    node = state.nodes[rank]
    if not node.notice:
        return None
    reason = f"{node.name} was lost: AWS took its spot instance back ({node.notice})"
    return Verdict("failed", NODE_FAILED, rank, reason)


def _judge_exit(state: State, event: Exited, before: State) -> Verdict | None:
    name = state.nodes[event.rank].name
    if event.code in ENDED_FROM_OUTSIDE and state.nodes[event.rank].notice:
        return _interruption_verdict(state, event.rank)
    if event.code != 0:
        reason = f"{name} exited with {event.code}"
        # Ranks that lose another rank often fail before the end of that rank is known.
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
    """Start the nodes whose turn has come; none before every node is prepared."""
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
    """Start the nodes of the wave that have not started."""
    due = [rank for rank in wave if state.nodes[rank].phase == "prepared"]
    nodes = list(state.nodes)
    for rank in due:
        nodes[rank] = replace(nodes[rank], phase="started")
    state = replace(state, nodes=Nodes.of(tuple(nodes)), waves=state.waves + 1)
    return state, tuple(Start(rank) for rank in due)


def _stop_all(state: State) -> Decision:
    """Stop every node that has not ended, once per run."""
    if state.stop_sent:
        return state, ()
    due = [rank for rank, node in enumerate(state.nodes) if not node.has_ended]
    nodes = list(state.nodes)
    for rank in due:
        nodes[rank] = replace(nodes[rank], stop_asked=True)
    state = replace(state, nodes=Nodes.of(tuple(nodes)), stop_sent=True)
    return state, tuple(Stop(rank) for rank in due)


def _replace_node(state: State, rank: int, node: NodeState) -> State:
    return replace(state, nodes=state.nodes.replace_node(rank, node))
