"""The run's decisions, driven through every order of events."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.states import (
    Action,
    DurationOver,
    Event,
    Exited,
    Finish,
    Gone,
    HeadEnding,
    Interrupted,
    Node,
    NotReady,
    Prepared,
    Ready,
    Start,
    State,
    Stop,
    StopAsked,
    decide,
)


def make_state(count: int, order: str = "any", criteria: str = "all-done") -> State:
    return State(order, criteria, tuple(Node(f"node{i}") for i in range(count)))


def feed(state: State, *events: Event) -> tuple[State, list[Action]]:
    actions: list[Action] = []
    for event in events:
        state, more = decide(state, event)
        actions += more
    return state, actions


def test_nobody_starts_before_all_are_prepared() -> None:
    state, actions = feed(make_state(3), Prepared(0), Prepared(2))
    assert actions == []
    assert feed(state, Prepared(1))[1] == [Start(0), Start(1), Start(2)]


@pytest.mark.parametrize(
    ("order", "first", "second"),
    [("master-first", [0], [1, 2]), ("workers-first", [1, 2], [0])],
)
def test_second_wave_waits_for_the_first(order: str, first: list[int], second: list[int]) -> None:
    state, actions = feed(make_state(3, order), *map(Prepared, range(3)))
    assert actions == [Start(rank) for rank in first]
    for rank in first[:-1]:
        state, actions = feed(state, Ready(rank))
        assert actions == []
    assert feed(state, Ready(first[-1]))[1] == [Start(rank) for rank in second]


def test_a_worker_that_is_done_early_does_not_hold_the_master() -> None:
    state, _ = feed(make_state(2, "workers-first"), Prepared(0), Prepared(1))
    state, actions = feed(state, Ready(1), Exited(1, 0), Gone(1, ""))
    assert actions == [Start(0)]


def test_a_worker_that_ends_before_it_is_ready_fails_the_run() -> None:
    state, _ = feed(make_state(2, "workers-first"), Prepared(0), Prepared(1))
    state, actions = feed(state, Exited(1, 0))
    assert actions == [Stop(0)]
    assert state.verdict is not None
    assert state.verdict.reason == "node1 exited with 0 before it was ready"


def test_master_alone_starts_at_once_under_workers_first() -> None:
    assert feed(make_state(1, "workers-first"), Prepared(0))[1] == [Start(0)]


def running(criteria: str = "all-done") -> State:
    return feed(make_state(3, "any", criteria), *map(Prepared, range(3)), *map(Ready, range(3)))[0]


def test_all_done_waits_for_every_node() -> None:
    state, actions = feed(running(), Exited(0, 0), Gone(0, ""), Exited(2, 0), Gone(2, ""))
    assert (actions, state.verdict) == ([], None)
    state, actions = feed(state, Exited(1, 0))
    assert (actions, state.verdict and state.verdict.status) == ([], "done")
    assert feed(state, Gone(1, ""))[1] == [Finish()]


def test_master_done_stops_the_workers_and_ignores_how_they_end() -> None:
    state, actions = feed(running("master-done"), Exited(0, 0))
    assert actions == [Stop(1), Stop(2)]
    ends = (Gone(0, ""), Exited(1, 143), Exited(2, 9), Gone(2, ""), Gone(1, ""))
    state, actions = feed(state, *ends)
    assert actions == [Finish()]
    assert state.verdict is not None
    assert (state.verdict.status, state.verdict.exit_code) == ("done", 0)


def test_the_first_failure_is_the_one_that_counts() -> None:
    state, actions = feed(running("master-done"), Exited(2, 7), Exited(0, 0), Exited(1, 3))
    assert actions == [Stop(0), Stop(1)]
    assert state.verdict is not None
    assert (state.verdict.exit_code, state.verdict.first_failed_rank) == (7, 2)


def test_a_lost_node_fails_the_run_and_is_named() -> None:
    state, actions = feed(running(), Gone(1, "Connection timed out"))
    assert actions == [Stop(0), Stop(2)]
    assert state.verdict is not None
    assert state.verdict.reason == "node1 was lost: Connection timed out"
    assert (state.verdict.exit_code, state.verdict.first_failed_rank) == (125, 1)


NOTICE = Interrupted(1, "terminate", "2026-11-20T22:31:05Z")
TAKEN_BACK = "node1 was lost: AWS took its spot instance back (terminate at 2026-11-20T22:31:05Z)"


def test_a_notice_alone_changes_nothing() -> None:
    state, actions = feed(running(), NOTICE)
    assert (actions, state.verdict) == ([], None)
    state, _ = feed(state, *(Exited(rank, 0) for rank in range(3)))
    assert state.verdict is not None
    assert state.verdict.status == "done"


@pytest.mark.parametrize("end", [Gone(1, "Connection closed"), Exited(1, 143), Exited(1, 137)])
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
        state, _ = feed(running(), NOTICE, Exited(rank, 7))
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


EVENTS = st.one_of(
    st.builds(Prepared, st.integers(0, 2)),
    st.builds(Ready, st.integers(0, 2)),
    st.builds(Exited, st.integers(0, 2), st.sampled_from([0, 0, 1, 137])),
    st.builds(Gone, st.integers(0, 2), st.just("lost")),
    st.builds(NotReady, st.integers(0, 2), st.just("no port")),
    st.just(StopAsked("asked")),
    st.just(DurationOver(60)),
    st.builds(Interrupted, st.integers(0, 2), st.just("terminate"), st.just("soon")),
    st.just(HeadEnding()),
)
ORDERS = st.sampled_from(["any", "master-first", "workers-first"])
CRITERIA = st.sampled_from(["all-done", "master-done"])


def histories() -> st.SearchStrategy[list[tuple[State, State, tuple[Action, ...]]]]:
    """Every step of a run: the state before, the state after, and the actions."""

    def steps(
        order: str, criteria: str, count: int, events: list[Event]
    ) -> list[tuple[State, State, tuple[Action, ...]]]:
        state, taken = make_state(count, order, criteria), []
        for event in events:
            if getattr(event, "rank", 0) < count:
                after, actions = decide(state, event)
                taken.append((state, after, actions))
                state = after
        return taken

    return st.builds(steps, ORDERS, CRITERIA, st.integers(1, 3), st.lists(EVENTS, max_size=40))


@given(histories())
def test_starts_are_in_order_and_once(steps: list[tuple[State, State, tuple[Action, ...]]]) -> None:
    started: list[int] = []
    for _, after, actions in steps:
        for start in (a for a in actions if isinstance(a, Start)):
            assert after.verdict is None
            if start.rank not in after.first_wave:
                waited = {after.nodes[rank].phase for rank in after.first_wave}
                assert waited <= {"ready", "exited", "gone"}
            started.append(start.rank)
    assert len(started) == len(set(started))


@given(histories())
def test_a_verdict_stays_and_stops_all_that_run(
    steps: list[tuple[State, State, tuple[Action, ...]]],
) -> None:
    stopped: list[int] = []
    for before, after, actions in steps:
        assert before.verdict is None or after.verdict == before.verdict
        stopped += [action.rank for action in actions if isinstance(action, Stop)]
        if after.verdict is None:
            assert stopped == []
            continue
        for rank, node in enumerate(after.nodes):
            assert node.phase in ("exited", "gone") or rank in stopped
    assert len(stopped) == len(set(stopped))


@given(histories())
def test_the_end_comes_once_and_when_nothing_is_left(
    steps: list[tuple[State, State, tuple[Action, ...]]],
) -> None:
    ends = [(after, actions) for _, after, actions in steps if Finish() in actions]
    assert len(ends) <= 1
    for after, _ in ends:
        assert after.verdict is not None
        assert {node.phase for node in after.nodes} == {"gone"}


@given(ORDERS, CRITERIA, st.lists(EVENTS, max_size=20))
def test_every_run_ends_when_its_nodes_are_gone(
    order: str, criteria: str, events: list[Event]
) -> None:
    state, actions = feed(make_state(3, order, criteria), *events)
    state, more = feed(state, *(Gone(rank, "lost") for rank in range(3)))
    assert state.verdict is not None
    assert [a for a in actions + more if isinstance(a, Finish)] == [Finish()]


def test_a_decision_changes_no_state_in_place() -> None:
    state = make_state(2)
    copy = replace(state)
    decide(state, Prepared(0))
    assert state == copy
