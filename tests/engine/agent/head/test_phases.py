"""The table of phases, walked by every order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.run_state import decide
from engine.agent.head.states import (
    ENDED,
    NODE,
    RUN,
    Action,
    Finish,
    Start,
    State,
    Stop,
    Table,
    next_phase,
)
from engine.contract.event import Event
from engine.contract.events import EVENTS as EVENT_CLASSES
from engine.contract.head_events import (
    DurationOver,
    HangJudged,
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
    st.builds(HangJudged, RANKS, st.just("stuck"), st.sampled_from(["report", "stop", "restart"])),
    st.builds(NodeNotPrepared, RANKS, st.just("no image")),
    st.builds(RankStarted, RANKS, RANKS, st.sampled_from([3, 3, 3, 1])),
    st.builds(NetworkSeen, RANKS, st.just("fault"), st.just("sockets")),
)
ORDERS = st.sampled_from(["any", "master-first", "workers-first"])
CRITERIA = st.sampled_from(["all-done", "master-done", "workers-done"])

Life = list[tuple[Event, State, State, tuple[Action, ...]]]
"""Each event of a run, the states around it, and the actions that follow."""
DERIVED = {"start", "all_prepared", "first_ready", "verdict", "all_gone"}
"""The kinds that decisions find; all others are those of events."""


@pytest.mark.parametrize("table", [NODE, RUN])
def test_every_kind_of_the_table_is_an_event_or_a_decision(table: Table) -> None:
    kinds = {kind for row in table.values() for kind in row}
    assert kinds - DERIVED <= EVENT_CLASSES.keys()
    assert {phase for row in table.values() for phase in row.values()} <= table.keys()


@pytest.mark.parametrize("table", [NODE, RUN])
def test_no_phase_but_that_of_the_next_attempt_comes_back(table: Table) -> None:
    order = list(table)
    back = [
        (phase, kind)
        for phase, row in table.items()
        for kind, after in row.items()
        if order.index(after) <= order.index(phase)
    ]
    assert back == ([("over", "attempt_started")] if table is RUN else [])


@pytest.mark.parametrize(("table", "last"), [(NODE, {"gone"}), (RUN, {"finished"})])
def test_the_end_is_reached_from_every_phase(table: Table, last: set[str]) -> None:
    assert {phase for phase, row in table.items() if not row} == last
    ends = set(last)
    for _ in table:
        ends |= {phase for phase, row in table.items() if ends & set(row.values())}
    assert ends == table.keys()


KINDS = st.sampled_from(sorted({kind for row in NODE.values() for kind in row}))


@given(st.lists(KINDS), st.sampled_from(["node_exited", "node_stopped"]))
def test_a_node_that_has_ended_only_goes(kinds: list[str], end: str) -> None:
    phase = "launching"
    for kind in kinds:
        phase = next_phase(NODE, phase, kind)
    assert next_phase(NODE, phase, end) in ENDED
    assert next_phase(NODE, phase, "node_gone") == "gone"


@st.composite
def lives(draw: st.DrawFn) -> Life:
    """A run of any events, whose nodes then end."""
    count = draw(st.integers(1, 3))
    state = make_state(count, draw(ORDERS), draw(CRITERIA), draw(st.integers(0, 1)))
    events = [event for event in draw(st.lists(EVENTS)) if getattr(event, "rank", 0) < count]
    if draw(st.booleans()):  # otherwise few runs would start
        events = [*map(NodePrepared, range(count)), *events]
    says_its_end = draw(st.booleans())
    for rank in draw(st.permutations(range(count))):
        events += [*([exited(rank, 0)] if says_its_end else []), NodeGone(rank, "ended")]
    life: Life = []
    for event in events:
        after, actions = decide(state, event)
        life.append((event, state, after, actions))
        state = after
    return life


@given(lives())
def test_phases_follow_the_table_and_never_go_back(
    life: Life,
) -> None:
    for event, before, after, _ in life:
        for node, moved in zip(before.nodes, after.nodes, strict=True):
            steps = {node.phase, next_phase(NODE, node.phase, event.kind)}
            steps |= {next_phase(NODE, phase, "start") for phase in steps}
            assert moved.phase in steps
        assert list(RUN).index(after.phase) >= list(RUN).index(before.phase)


@given(lives())
def test_every_run_ends_once_and_every_job_that_started_has_ended_or_was_stopped(
    life: Life,
) -> None:
    started, stopped = list[int](), list[int]()
    for _, before, after, actions in life:
        started += [action.rank for action in actions if isinstance(action, Start)]
        stopped += [action.rank for action in actions if isinstance(action, Stop)]
        if after.verdict is None:
            assert stopped == []
            continue
        if before.verdict is not None and after.verdict != before.verdict:
            assert (before.verdict.status, after.verdict.status) == ("done", "failed")
        for rank, node in enumerate(after.nodes):
            assert node.phase in ENDED or rank in stopped
    assert (len(started), len(stopped)) == (len(set(started)), len(set(stopped)))
    (end,) = (after for *_, after, actions in life for action in actions if action == Finish())
    assert {node.phase for node in end.nodes} == {"gone"}
    assert end.phase == life[-1][2].phase == "over"
    assert end.verdict is not None


@given(lives())
def test_no_job_starts_before_all_nodes_are_prepared_or_out_of_its_wave(
    life: Life,
) -> None:
    unprepared = set(range(len(life[0][1].nodes)))
    for event, before, after, actions in life:
        unprepared.discard(getattr(event, "rank", -1) if _prepares(event) else -1)
        for rank in (action.rank for action in actions if isinstance(action, Start)):
            assert not unprepared
            assert after.verdict is None
            if rank not in before.first_wave:
                waited = {after.nodes[other].phase for other in before.first_wave}
                assert waited <= {"ready", *ENDED}


def _prepares(event: Event) -> bool:
    """Whether the node has been prepared if it says that; also one that is past it."""
    return event.kind in ("node_prepared", "node_ready", "node_exited", "node_gone")


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
