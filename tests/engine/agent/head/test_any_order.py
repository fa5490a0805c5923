"""The run's decisions, driven through every order of events."""

from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.decisions import decide
from engine.agent.head.states import Action, Finish, Start, State, Stop
from engine.contract.event import Event
from engine.contract.head_events import (
    DurationOver,
    HeadEnding,
    NetworkSeen,
    NodeGone,
    NodeLost,
    OutputStopped,
    StartupOver,
    StopAsked,
)
from engine.contract.worker_events import (
    NodeInterrupted,
    NodeNotPrepared,
    NodeNotReady,
    NodePrepared,
    NodeReady,
    RankStarted,
)
from tests.engine.agent.head.test_states import exited, feed, make_state

RANKS = st.integers(0, 2)
EVENTS = st.one_of(
    st.builds(NodePrepared, RANKS),
    st.builds(NodeReady, RANKS),
    st.builds(exited, RANKS, st.sampled_from([0, 0, 1, 137])),
    st.builds(NodeGone, RANKS, st.just("lost")),
    st.builds(NodeLost, RANKS, st.just("has not answered")),
    st.builds(NodeNotReady, RANKS, st.just("no port")),
    st.just(StopAsked("asked")),
    st.just(DurationOver(60)),
    st.builds(NodeInterrupted, RANKS, st.just("terminate"), st.just("soon")),
    st.just(HeadEnding()),
    st.just(OutputStopped(60)),
    st.just(StartupOver(60)),
    st.builds(NodeNotPrepared, RANKS, st.just("no image")),
    st.builds(RankStarted, RANKS, RANKS, st.sampled_from([3, 3, 3, 1])),
    st.builds(NetworkSeen, RANKS, st.just("fault"), st.just("sockets")),
)
ORDERS = st.sampled_from(["any", "master-first", "workers-first"])
CRITERIA = st.sampled_from(["all-done", "master-done", "workers-done"])


def histories() -> st.SearchStrategy[list[tuple[State, State, tuple[Action, ...]]]]:
    """Every step of a run: the state before, the state after, and the actions."""

    def steps(
        order: str, criteria: str, count: int, processes: int, events: list[Event]
    ) -> list[tuple[State, State, tuple[Action, ...]]]:
        state, taken = make_state(count, order, criteria, processes), []
        for event in events:
            if getattr(event, "rank", 0) < count:
                after, actions = decide(state, event)
                taken.append((state, after, actions))
                state = after
        return taken

    counts, processes, events = st.integers(1, 3), st.integers(0, 1), st.lists(EVENTS, max_size=40)
    return st.builds(steps, ORDERS, CRITERIA, counts, processes, events)


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
        if before.verdict is not None and after.verdict != before.verdict:
            assert after.verdict is not None
            assert (before.verdict.status, after.verdict.status) == ("done", "failed")
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


@st.composite
def good_runs(draw: st.DrawFn) -> tuple[int, list[Event], list[int]]:
    """A run in which every node does its part, in any order of nodes; where each rank began."""
    count = draw(st.integers(1, 3))
    places = draw(st.lists(st.integers(0, count - 1), min_size=count - 1, max_size=count))
    parts: list[list[Event]] = [[NodePrepared(rank), NodeReady(rank)] for rank in range(count)]
    for process, rank in enumerate(places):
        parts[rank].append(RankStarted(rank, process, count))
    for rank in range(count):
        parts[rank] += [exited(rank, 0), NodeGone(rank, "")]
    turns = draw(st.permutations([rank for rank, part in enumerate(parts) for _ in part]))
    return (
        count,
        [NodePrepared(rank) for rank in range(count)] + [parts[rank].pop(0) for rank in turns],
        places,
    )


@given(good_runs())
def test_a_run_is_done_where_every_planned_rank_was_where_it_belongs(
    run: tuple[int, list[Event], list[int]],
) -> None:
    count, events, places = run
    state, actions = feed(make_state(count, processes=1), *events)
    assert actions[-1] == Finish()
    assert state.verdict is not None
    as_planned = sorted(places) == list(range(count))
    assert state.verdict.status == ("done" if as_planned else "failed")


@given(ORDERS, CRITERIA, st.lists(EVENTS, max_size=20))
def test_every_run_ends_when_its_nodes_are_gone(
    order: str, criteria: str, events: list[Event]
) -> None:
    state, actions = feed(make_state(3, order, criteria), *events)
    state, more = feed(state, *(NodeGone(rank, "lost") for rank in range(3)))
    assert state.verdict is not None
    assert [a for a in actions + more if isinstance(a, Finish)] == [Finish()]
