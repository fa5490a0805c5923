"""The decisions of a run: pure functions of its events, without clock, files or processes.

They are separate from the supervisor so that property tests can try startup order, stop criteria
and failures with every order of events.
"""

from __future__ import annotations

from dataclasses import replace

from engine.agent.head.nodes import Nodes, NodeState
from engine.agent.head.states import Action, Finish, Start, State, Stop, is_over
from engine.agent.head.verdicts import judge, judge_missing
from engine.contract.events import (
    DurationOver,
    Event,
    HeadEnding,
    NetworkSeen,
    NodeExited,
    NodeGone,
    NodeInterrupted,
    NodeLost,
    NodeNotPrepared,
    NodeNotReady,
    NodePrepared,
    NodeReady,
    NodesHealed,
    NodeStopped,
    NodeUnreachable,
    OutputStopped,
    RankStarted,
    StartupOver,
    StopAsked,
)

DECISIVE = (
    NodePrepared,
    NodeNotPrepared,
    NodeReady,
    NodeNotReady,
    RankStarted,
    NetworkSeen,
    NodeInterrupted,
    NodeExited,
    NodeStopped,
    NodeLost,
    NodeUnreachable,
    NodeGone,
    StopAsked,
    DurationOver,
    HeadEnding,
    OutputStopped,
    StartupOver,
    NodesHealed,
)
"""The events from which something may follow for the run."""

_ORDER = ("launching", "prepared", "started", "ready", "exited", "gone")

Decision = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Decision:
    """Return the state after `event`, and the actions that follow from it, in order."""
    if is_over(state):
        return state, ()
    state = judge(_advance(state, event), event, state)
    state, stops = _stop_all(state) if state.verdict else (state, ())
    state, starts = _start_due(state) if not state.verdict else (state, ())
    actions: tuple[Action, ...] = stops + starts
    if is_over(state):
        state = judge_missing(state)
        actions += (Finish(),)
    return state, actions


def _advance(state: State, event: Event) -> State:
    """Return the state with the node of `event` in its new phase; phases never go back."""
    if isinstance(event, NodeInterrupted):
        notice = f"{event.action} at {event.at}"
        return _replace_node(state, event.rank, replace(state.nodes[event.rank], notice=notice))
    if isinstance(event, RankStarted):
        node = state.nodes[event.rank]
        return _replace_node(state, event.rank, replace(node, ranks=node.ranks | {event.process}))
    if not isinstance(event, (NodePrepared, NodeReady, NodeExited, NodeStopped, NodeGone)):
        return state
    phase, node = _phase_after(event), state.nodes[event.rank]
    if _ORDER.index(phase) <= _ORDER.index(node.phase):
        return state
    return _replace_node(state, event.rank, replace(node, phase=phase))


def _phase_after(event: NodePrepared | NodeReady | NodeExited | NodeStopped | NodeGone) -> str:
    """Return the phase that begins with the event; the first one if none does."""
    if isinstance(event, NodePrepared):
        return "prepared"
    if isinstance(event, NodeReady):
        return "ready"
    if isinstance(event, NodeGone):
        return "gone"
    return "launching" if event.exit_code is None else "exited"


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
