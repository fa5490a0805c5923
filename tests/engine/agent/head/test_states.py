"""The run's decisions: what each event leads to."""

import sys
from dataclasses import replace

import pytest

from engine.agent.head.run_state import decide
from engine.agent.head.states import Action, Finish, Nodes, NodeState, Start, State, Stop
from engine.contract.event import Event
from engine.contract.head_events import (
    DurationOver,
    HeadEnding,
    NetworkSeen,
    NodeGone,
    NodeLost,
    StopAsked,
)
from engine.contract.worker_events import (
    NodeExited,
    NodeInterrupted,
    NodeNotPrepared,
    NodeNotReady,
    NodePrepared,
    NodeReady,
    RankStarted,
)


def make_state(
    count: int, order: str = "any", criteria: str = "all-done", processes: int = 0
) -> State:
    nodes = tuple(NodeState(f"node{i}", processes=processes) for i in range(count))
    return State(order, criteria, Nodes.of(nodes))


def exited(rank: int, code: int) -> NodeExited:
    return NodeExited(rank, code, signal=None)


def feed(state: State, *events: Event) -> tuple[State, list[Action]]:
    actions: list[Action] = []
    for event in events:
        state, more = decide(state, event)
        actions += more
    return state, actions


def test_nobody_starts_before_all_are_prepared() -> None:
    state, actions = feed(make_state(3), NodePrepared(0), NodePrepared(2))
    assert actions == []
    assert feed(state, NodePrepared(1))[1] == [Start(0), Start(1), Start(2)]


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [("master-first", [0], [1, 2]), ("workers-first", [1, 2], [0])],
)
def test_second_wave_waits_for_the_first(order: str, first: list[int], second: list[int]) -> None:
    state, actions = feed(make_state(3, order), *map(NodePrepared, range(3)))
    assert actions == [Start(rank) for rank in first]
    for rank in first[:-1]:
        state, actions = feed(state, NodeReady(rank))
        assert actions == []
    assert feed(state, NodeReady(first[-1]))[1] == [Start(rank) for rank in second]


def test_a_worker_that_is_done_early_does_not_hold_the_master() -> None:
    state, _ = feed(make_state(2, "workers-first"), NodePrepared(0), NodePrepared(1))
    state, actions = feed(state, NodeReady(1), exited(1, 0), NodeGone(1, ""))
    assert actions == [Start(0)]


def test_a_worker_that_ends_before_it_is_ready_fails_the_run() -> None:
    state, _ = feed(make_state(2, "workers-first"), NodePrepared(0), NodePrepared(1))
    state, actions = feed(state, exited(1, 0))
    assert actions == [Stop(0)]
    assert reason(state) == ("failed", 125, 1, "node1 exited with 0 before it was ready")


def test_master_alone_starts_at_once_under_workers_first() -> None:
    state = make_state(1, "workers-first")
    assert feed(state, NodePrepared(0))[1] == [Start(0)]
    assert list(state.first_wave) == [0]  # whose readiness is asked for


def running(criteria: str = "all-done") -> State:
    return feed(
        make_state(3, "any", criteria), *map(NodePrepared, range(3)), *map(NodeReady, range(3))
    )[0]


def test_all_done_waits_for_every_node() -> None:
    state, actions = feed(running(), exited(0, 0), NodeGone(0, ""), exited(2, 0), NodeGone(2, ""))
    assert (actions, state.verdict) == ([], None)
    state, actions = feed(state, exited(1, 0))
    assert (actions, reason(state)) == ([], ("done", 0, None, "all nodes are done"))
    assert feed(state, NodeGone(1, ""))[1] == [Finish()]


def test_master_done_stops_the_workers_and_ignores_how_they_end() -> None:
    state, actions = feed(running("master-done"), exited(0, 0))
    assert actions == [Stop(1), Stop(2)]
    ends = (NodeGone(0, ""), exited(1, 143), exited(2, 9), NodeGone(2, ""), NodeGone(1, ""))
    state, actions = feed(state, *ends)
    assert actions == [Finish()]
    assert state.verdict is not None
    assert (state.verdict.status, state.verdict.exit_code) == ("done", 0)


def test_the_first_failure_is_the_one_that_counts() -> None:
    state, actions = feed(running("master-done"), exited(2, 7), exited(0, 0), exited(1, 3))
    assert actions == [Stop(0), Stop(1)]
    assert state.verdict is not None
    assert (state.verdict.exit_code, state.verdict.first_failed_rank) == (7, 2)


def test_a_lost_node_fails_the_run_and_is_named() -> None:
    state, actions = feed(running(), NodeGone(1, "Connection timed out"))
    assert actions == [Stop(0), Stop(2)]
    assert state.verdict is not None
    assert state.verdict.reason == "node1 was lost: Connection timed out"
    assert (state.verdict.exit_code, state.verdict.first_failed_rank) == (125, 1)


SILENT = NodeLost(1, "has not answered for 15 s (last heard 12:03:44 UTC)")


def test_a_node_that_is_lost_stops_the_run_at_once_and_is_waited_for() -> None:
    state, actions = feed(running(), SILENT)
    assert actions == [Stop(0), Stop(1), Stop(2)]
    assert reason(state) == (
        "failed",
        125,
        1,
        "node1 has not answered for 15 s (last heard 12:03:44 UTC)",
    )
    state, actions = feed(state, NodeGone(0, ""), NodeGone(2, ""))
    assert actions == []
    assert feed(state, NodeGone(1, "given up"))[1] == [Finish()]


def test_a_node_that_is_lost_after_its_job_has_ended_changes_nothing() -> None:
    state, actions = feed(running(), exited(1, 0), SILENT)
    assert (actions, state.verdict) == ([], None)


def test_a_node_that_is_lost_before_anything_started_is_a_failure() -> None:
    state, _ = feed(make_state(2), NodePrepared(0), NodeLost(1, "cannot be reached: refused"))
    assert reason(state) == ("failed", 125, 1, "node1 cannot be reached: refused")


NOTICE = NodeInterrupted(1, "terminate", "2026-11-20T22:31:05Z")
TAKEN_BACK = "node1 was lost: AWS took its spot instance back (terminate at 2026-11-20T22:31:05Z)"


def test_a_notice_alone_changes_nothing() -> None:
    state, actions = feed(running(), NOTICE)
    assert (actions, state.verdict) == ([], None)
    state, _ = feed(state, *(exited(rank, 0) for rank in range(3)))
    assert state.verdict is not None
    assert state.verdict.status == "done"


@pytest.mark.parametrize(
    "end", [NodeGone(1, "Connection closed"), SILENT, exited(1, 143), exited(1, 137)]
)
def test_a_node_that_aws_takes_back_is_named_so(end: Event) -> None:
    state, actions = feed(running(), NOTICE, end)
    assert actions[0] == Stop(0)
    assert state.verdict is not None
    assert state.verdict.reason == TAKEN_BACK
    assert (state.verdict.status, state.verdict.exit_code) == ("failed", 125)
    assert state.verdict.first_failed_rank == 1


def test_a_job_that_fails_by_itself_keeps_its_code_and_the_notice_is_told() -> None:
    at = "AWS takes node1's spot instance back: terminate at 2026-11-20T22:31:05Z"
    for rank in (0, 1):  # node0 because it misses node1, or node1 by itself
        state, _ = feed(running(), NOTICE, exited(rank, 7))
        assert state.verdict is not None
        assert state.verdict.reason == f"node{rank} exited with 7; {at}"
        assert state.verdict.exit_code == 7


def test_the_heads_end_is_a_stop_unless_aws_takes_it_back() -> None:
    state, _ = feed(running(), HeadEnding())
    assert state.verdict is not None
    assert (state.verdict.status, state.verdict.exit_code) == ("stopped", 130)
    state, _ = feed(running(), replace(NOTICE, rank=0), HeadEnding())
    assert state.verdict is not None
    assert state.verdict.reason == TAKEN_BACK.replace("node1", "node0")
    assert (state.verdict.exit_code, state.verdict.first_failed_rank) == (125, 0)
    state, _ = feed(running(), replace(NOTICE, rank=0), HeadEnding(None))  # rank 0 is elsewhere
    assert state.verdict is not None
    assert state.verdict.reason == "the supervisor got SIGTERM"


def launching(processes: int = 8) -> State:
    """A launcher runs on node0, its ranks shall be on node0 and node1."""
    nodes = tuple(NodeState(f"node{i}", "worker" if i else "launcher", processes) for i in range(2))
    state = State("workers-first", "master-done", Nodes.of(nodes))
    return feed(state, NodePrepared(0), NodePrepared(1), NodeReady(1), NodeReady(0))[0]


def ended(state: State) -> State:
    return feed(state, exited(0, 0), NodeGone(0, ""), exited(1, 143), NodeGone(1, ""))[0]


def reason(state: State) -> tuple[str, int, int | None, str]:
    assert state.verdict is not None
    verdict = state.verdict
    return verdict.status, verdict.exit_code, verdict.first_failed_rank, verdict.reason


def test_a_node_that_cannot_run_the_job_fails_the_run() -> None:
    state, actions = feed(make_state(2), NodePrepared(0), NodeNotPrepared(1, "no image"))
    assert actions == [Stop(0), Stop(1)]
    assert reason(state) == ("failed", 125, 1, "node1 cannot run the job: no image")


def test_all_ranks_on_the_head_fail_the_run_at_once() -> None:
    state = launching()
    state, actions = feed(state, *(RankStarted(0, rank, 16) for rank in range(8)))
    assert (state.verdict, actions) == (None, [])
    state, actions = feed(state, RankStarted(0, 8, 16))
    assert actions == [Stop(0), Stop(1)]
    assert reason(state) == (
        "failed",
        1,
        0,
        "node0 got 9 ranks of 16, 8 were planned there: the launcher ignored the hostfile",
    )


def test_another_number_of_ranks_fails_the_run_at_once() -> None:
    state, actions = feed(launching(), RankStarted(0, 0, 8))
    assert actions == [Stop(0), Stop(1)]
    assert reason(state) == ("failed", 1, 0, "the launcher started 8 ranks, 16 were planned")


def test_a_node_without_its_ranks_fails_a_run_that_seemed_done() -> None:
    state, _ = feed(launching(1), RankStarted(0, 0, 2))
    assert reason(ended(state)) == ("failed", 1, 1, "node1 ran 0 of its 1 ranks")


def test_ranks_that_are_told_of_after_the_launchers_end_count() -> None:
    state, _ = feed(launching(1), RankStarted(0, 0, 2), exited(0, 0), RankStarted(1, 1, 2))
    state, actions = feed(state, NodeGone(0, ""), exited(1, 143), NodeGone(1, ""))
    assert actions == [Finish()]
    assert reason(state)[:2] == ("done", 0)


def test_a_rank_that_begins_again_counts_once() -> None:
    state, _ = feed(launching(1), *[RankStarted(0, 0, 2)] * 3, RankStarted(1, 1, 2))
    assert reason(ended(state))[0] == "done"


def test_a_launcher_that_fails_keeps_its_code() -> None:
    state, _ = feed(launching(), exited(0, 205), NodeGone(0, ""), exited(1, 0), NodeGone(1, ""))
    assert reason(state) == ("failed", 205, 0, "node0 exited with 205")


def test_ranks_count_only_where_they_were_planned() -> None:
    state, actions = feed(running(), RankStarted(0, 5, 99))
    assert (state.verdict, actions) == (None, [])


def test_a_fault_of_the_network_fails_the_run_also_late() -> None:
    fault = NetworkSeen(1, "fault", "node1 uses sockets")
    state, actions = feed(running(), fault)
    assert actions == [Stop(0), Stop(1), Stop(2)]
    assert reason(state) == ("failed", 1, 1, "node1 uses sockets")
    late = feed(running("master-done"), exited(0, 0), fault)[0]
    assert reason(late) == ("failed", 1, 1, "node1 uses sockets")
    failed = feed(running(), exited(2, 7), fault)[0]
    assert reason(failed)[:2] == ("failed", 7)


def test_workers_done_ends_the_parameter_servers() -> None:
    roles = ("ps", "worker", "worker")
    nodes = tuple(NodeState(f"node{i}", role) for i, role in enumerate(roles))
    state = State("any", "workers-done", Nodes.of(nodes))
    state, _ = feed(state, *map(NodePrepared, range(3)), *map(NodeReady, range(3)), exited(1, 0))
    assert state.verdict is None
    state, actions = feed(state, exited(2, 0))
    assert actions == [Stop(0)]
    assert reason(state) == ("done", 0, None, "the workers are done")


@pytest.mark.parametrize(
    ("event", "verdict"),
    [
        (StopAsked("Ctrl-C"), ("stopped", 130, None, "Ctrl-C")),
        (HeadEnding(), ("stopped", 130, None, "the supervisor got SIGTERM")),
        (DurationOver(60), ("failed", 124, None, "max_duration of 60 s is over")),
        (NodeNotReady(1, "no port"), ("failed", 124, 1, "node1 is not ready: no port")),
        (exited(1, 143), ("failed", 143, 1, "node1 exited with 143")),
        (exited(0, 0), ("done", 0, None, "the master is done")),
    ],
)
def test_what_ends_a_run_alone(event: Event, verdict: tuple[str, int, int | None, str]) -> None:
    assert reason(feed(running("master-done"), event)[0]) == verdict


@pytest.mark.parametrize(
    ("roles", "order", "criteria", "events"),
    [
        (("worker", "worker"), "any", "master-done", [exited(1, 0)]),
        # Nobody waits until it is ready, or it was.
        (("worker", "worker"), "any", "all-done", [exited(0, 0)]),
        (("worker", "worker"), "workers-first", "all-done", [NodeReady(1), exited(1, 0)]),
        (("ps", "worker"), "any", "all-done", [exited(1, 0)]),
        (("ps", "ps"), "any", "workers-done", [exited(1, 0)]),
    ],
)
def test_a_node_that_ends_well_leaves_the_others(
    roles: tuple[str, ...], order: str, criteria: str, events: list[Event]
) -> None:
    nodes = Nodes.of(tuple(NodeState(f"node{rank}", role) for rank, role in enumerate(roles)))
    state, _ = feed(State(order, criteria, nodes), NodePrepared(0), NodePrepared(1), *events)
    assert state.verdict is None


def test_a_decision_changes_no_state_in_place() -> None:
    state = make_state(2)
    copy = replace(state)
    decide(state, NodePrepared(0))
    assert state == copy


def calls_of(count: int, order: str, criteria: str) -> int:
    """How many calls a run takes in which every node prepares, launches 8 ranks, and ends."""
    calls = 0

    def count_calls(*_: object) -> None:
        nonlocal calls
        calls += 1

    ranks = range(count)
    events: list[Event] = [NodePrepared(rank) for rank in ranks]
    events += [RankStarted(rank, 8 * rank + i, 8 * count) for rank in ranks for i in range(8)]
    events += [*map(NodeReady, ranks), *(exited(rank, 0) for rank in ranks), *map(gone, ranks)]
    state = make_state(count, order, criteria, processes=8)
    sys.setprofile(count_calls)  # one call for each item of a generator, too
    try:
        state, _ = feed(state, *events)
    finally:
        sys.setprofile(None)
    assert state.verdict is not None
    return calls


def gone(rank: int) -> NodeGone:
    return NodeGone(rank, "")


@pytest.mark.parametrize("order", ["any", "master-first", "workers-first"])
@pytest.mark.parametrize("criteria", ["all-done", "workers-done"])
def test_an_event_takes_the_same_work_in_a_large_run(order: str, criteria: str) -> None:
    assert calls_of(256, order, criteria) < 4.2 * calls_of(64, order, criteria)


def test_an_event_that_ends_the_run_counts_also_while_a_failed_attempt_stops() -> None:
    state, _ = feed(running(), exited(1, 7), StopAsked("Ctrl-C"), DurationOver(60))
    assert reason(state)[:3] == ("failed", 7, 1)
    assert state.ending is not None
    assert (state.ending.status, state.ending.reason) == ("stopped", "Ctrl-C")
    over, actions = feed(state, *map(gone, range(3)))
    assert actions == [Finish()]
    assert over.ending == state.ending
