"""The table of phases, walked by every order of events."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.decisions import decide
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
from engine.contract.head_events import NodeGone
from engine.contract.worker_events import NodeExited, NodePrepared
from tests.engine.agent.head.test_any_order import CRITERIA, EVENTS, ORDERS
from tests.engine.agent.head.test_states import make_state

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
    for rank in draw(st.permutations(range(count))):
        events += [NodeExited(rank, 0, None), NodeGone(rank, "ended")]
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
    started, stopped, ended = set(), set(), set()
    for event, _, after, actions in life:
        if isinstance(event, (NodeExited, NodeGone)):
            ended.add(event.rank)
        started |= {action.rank for action in actions if isinstance(action, Start)}
        stopped |= {action.rank for action in actions if isinstance(action, Stop)}
        if after.phase in ("stopping", "over"):
            assert started <= stopped | ended
    *_, (_, _, state, _) = life
    assert [actions.count(Finish()) for *_, actions in life if Finish() in actions] == [1]
    assert state.phase == "over"
    assert state.verdict is not None


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
