"""The verdicts of a run: which events end it, and as what. Pure functions."""

from __future__ import annotations

from dataclasses import replace

from engine.agent.head.states import ENDED, State
from engine.contract.event import Event, NodeEvent
from engine.contract.head_events import (
    DurationOver,
    HangJudged,
    HeadEnding,
    NetworkSeen,
    NodeGone,
    NodeLost,
    NodeUnreachable,
    OutputStopped,
    StartupOver,
    StopAsked,
)
from engine.contract.verdict import (
    ENDED_FROM_OUTSIDE,
    NODE_FAILED,
    STOPPED,
    TIMED_OUT,
    WRONG_RUN,
    Verdict,
    exit_reason,
)
from engine.contract.worker_events import (
    NodeExited,
    NodeNotPrepared,
    NodeNotReady,
    NodeStopped,
    RankStarted,
)

ENDS_RUN = (StopAsked, DurationOver, HeadEnding)
"""The events that end the run, and not only an attempt of it."""
STOP_REASON = "stopped on request"


def judge(state: State, event: Event, before: State) -> State:
    """Add the verdict of `event`. The first verdict wins; only `done` may turn into a failure."""
    verdict: Verdict | None = None
    if state.verdict is None or state.verdict.status == "done":
        verdict = _judge_launch(state, event)
    if state.verdict is None and verdict is None and isinstance(event, NodeEvent):
        verdict = _judge_node(state, event, before)
    elif state.verdict is None and verdict is None:
        verdict = judge_run(state, event)
    if verdict is not None and state.will_stop:  # as an exit code after StopAsked
        verdict = Verdict("stopped", STOPPED, None, STOP_REASON)
    return replace(state, verdict=verdict or state.verdict)


def judge_run(state: State, event: Event) -> Verdict | None:
    """Return the verdict of an event that concerns the whole run; None if the run goes on."""
    if isinstance(event, StopAsked):
        return Verdict("stopped", STOPPED, None, event.reason)
    if isinstance(event, DurationOver):
        return Verdict("failed", TIMED_OUT, None, f"max_duration of {event.seconds} s is over")
    if isinstance(event, OutputStopped):
        reason = f"no node has printed a line for {event.seconds} s (no_output_timeout)"
        return Verdict("failed", TIMED_OUT, None, reason, cause="no-output")
    if isinstance(event, HangJudged) and event.action != "report":
        cause = "no-output" if event.action == "restart" else ""
        return Verdict("failed", TIMED_OUT, event.rank, event.text, cause=cause)
    if isinstance(event, StartupOver):
        return _judge_startup(state, event)
    if isinstance(event, HeadEnding):
        stopped = Verdict("stopped", STOPPED, None, "the supervisor got SIGTERM")
        taken = None if event.head_rank is None else _interruption_verdict(state, event.head_rank)
        # The supervisor ends together with its machine, so nobody could retry.
        return replace(taken, cause="") if taken else stopped
    return None


def _judge_startup(state: State, event: StartupOver) -> Verdict | None:
    late = state.nodes.first_late()
    if late is None:
        return None
    rank, what = late
    reason = f"{state.nodes[rank].name} {what} {event.seconds} s after the start (startup_timeout)"
    return Verdict("failed", TIMED_OUT, rank, reason, cause="startup")


def _judge_node(state: State, event: NodeEvent, before: State) -> Verdict | None:
    name = state.nodes[event.rank].name
    if isinstance(event, NodeNotPrepared):
        reason = f"{name} cannot run the job: {event.reason}"
        return Verdict("failed", NODE_FAILED, event.rank, reason, cause="startup")
    if isinstance(event, NodeNotReady):
        reason = f"{name} is not ready: {event.reason}"
        return Verdict("failed", TIMED_OUT, event.rank, reason, cause="startup")
    if isinstance(event, (NodeExited, NodeStopped)):
        return None if event.exit_code is None else _judge_exit(state, event, before)
    symptom = _symptom(event)
    if symptom and before.nodes[event.rank].phase != "exited":
        lost = Verdict("failed", NODE_FAILED, event.rank, f"{name} {symptom}", cause="node-lost")
        return _interruption_verdict(state, event.rank) or lost
    return None


def _symptom(event: NodeEvent) -> str:
    """Return what the event says of a node that the run has lost; empty for other events."""
    if isinstance(event, NodeLost):
        return event.symptom or event.reason
    if isinstance(event, NodeUnreachable):
        return f"cannot be reached: {event.reason}"
    return f"was lost: {event.reason}" if isinstance(event, NodeGone) else ""


def _judge_launch(state: State, event: Event) -> Verdict | None:
    """Return a verdict if a launcher, or the network, does not do what was planned."""
    if isinstance(event, NetworkSeen) and event.level == "fault":
        return Verdict("failed", WRONG_RUN, event.rank, event.text, cause="network")
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


def judge_missing(state: State) -> State:
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
    return Verdict("failed", NODE_FAILED, rank, reason, cause="preemption")


def _judge_exit(state: State, event: NodeExited | NodeStopped, before: State) -> Verdict | None:
    name, code = state.nodes[event.rank].name, event.exit_code or 0
    if code in ENDED_FROM_OUTSIDE and state.nodes[event.rank].notice:
        return _interruption_verdict(state, event.rank)
    if code != 0:
        reason = exit_reason(name, code)
        # Ranks that lose another rank often fail before the end of that rank is known.
        for other in (node for node in state.nodes if node.notice):
            reason += f"; AWS takes {other.name}'s spot instance back: {other.notice}"
        return Verdict("failed", code, event.rank, reason, True, "exit-code")
    # As long as a node is prepared and not started, it waits for all that were started before it.
    if state.nodes.count("prepared") and before.nodes[event.rank].phase != "ready":
        reason = f"{name} exited with 0 before it was ready"
        return Verdict("failed", NODE_FAILED, event.rank, reason, cause="startup")
    return _judge_done(state, event)


def _judge_done(state: State, event: NodeEvent) -> Verdict | None:
    if state.stop_criteria == "master-done" and event.rank == 0:
        return Verdict("done", 0, None, "the master is done")
    nodes = state.nodes
    if state.stop_criteria == "workers-done" and nodes.has_workers and not nodes.running_workers:
        return Verdict("done", 0, None, "the workers are done")
    if nodes.count(*ENDED) == len(nodes):
        return Verdict("done", 0, None, "all nodes are done")
    return None
