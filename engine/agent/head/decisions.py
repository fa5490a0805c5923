"""The decisions of a run: pure functions of its events, without clock, files or processes.

They are separate from the supervisor so that property tests can try startup order, stop criteria
and failures with every order of events.
"""

from __future__ import annotations

from dataclasses import replace

from engine.agent.head.states import Action, Finish, Nodes, Start, State, Stop
from engine.agent.head.verdicts import ENDS_RUN, judge, judge_missing, judge_run
from engine.contract.event import Event, NodeEvent

Decision = tuple[State, tuple[Action, ...]]


def decide(state: State, event: Event) -> Decision:
    """Return the state after `event`, and the actions that follow from it, in order."""
    before, state = state, state.move(event.kind)
    if state.phase in ("queued", "finished"):
        return state, ()
    if before.verdict is not None and isinstance(event, ENDS_RUN):
        return replace(state, ending=state.ending or judge_run(state, event)), ()
    if state.is_over:
        return state, ()
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
