"""Runs with retry and a queue, whose supervisors are killed: every order of events ends well.

A model of a run's whole life out of the pure parts: the queue's choice, the decisions of an attempt
and of those between attempts, and the memory that the journal is. No clock, files or processes.
"""

from dataclasses import dataclass, field

import pytest
from hypothesis import given
from hypothesis import strategies as st

from engine.agent.head.queue import STARTED, Entries, Entry, runs_ahead, set_state, waiting_runs
from engine.agent.head.run_state import RunState, WaitForNodes, decide, next_step
from engine.agent.head.states import Start, Stop
from engine.contract.event import Event, change
from engine.contract.head_events import (
    AttemptEnded,
    AttemptStarted,
    DurationOver,
    HeadEnding,
    NodeGone,
    NodeLost,
    NodesHealed,
    OutputStopped,
    StopAsked,
    SupervisorResumed,
    WaitingForNodes,
)
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import Verdict
from engine.contract.worker_events import (
    NodeExited,
    NodeInterrupted,
    NodeNotPrepared,
    NodePrepared,
    NodeReady,
)
from tests.engine.bare_events import FINISHED
from tests.engine.bare_events import STARTED as RUN_STARTED
from tests.engine.conftest import make_plan

pytestmark = pytest.mark.slow

NODES = ("node0", "node1", "node2")
PLAN = make_plan(nodes=3, retry={"attempts": 3, "backoff": "1s"})
POLICY = PLAN.retry
WANTED = st.lists(st.sets(st.sampled_from(NODES), min_size=1), min_size=1, max_size=4)
RANKS = st.integers(0, 2)
OF_NODES = st.sampled_from(
    [
        *[NodePrepared(0)] * 4,
        *[NodeReady(0)] * 2,
        NodeExited(0, 0, None),
        NodeExited(0, 7, None),
        NodeNotPrepared(0, "no image"),
        NodeLost(0, "silent"),
        NodeGone(0, "ended"),
        NodeInterrupted(0, "terminate", "soon"),
    ]
)
OF_RUN = st.sampled_from(
    [
        StopAsked("asked"),
        DurationOver(60),
        HeadEnding(),
        OutputStopped(60),
        NodesHealed({"node1": "10.0.0.9"}),
    ]
)
KILLED = SupervisorResumed()
"""The supervisor is killed, and the next one takes the run up."""
EVENTS: st.SearchStrategy[list[Event]] = st.lists(
    st.one_of(
        st.builds(lambda rank, event: change(event, rank=rank), RANKS, OF_NODES),
        OF_RUN,
        st.just(KILLED),
    ),
    max_size=40,
)


@dataclass
class Life:
    """A run from its start: its journal, its state, and the units that run on its nodes."""

    plan: LaunchPlan = field(default_factory=lambda: PLAN)
    events: list[Event] = field(default_factory=list)
    units: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        self.add(RUN_STARTED)
        self.resume()

    def add(self, event: Event) -> None:
        self.events.append(change(event, time=1.0))

    def resume(self) -> None:
        """Forget everything, as a killed supervisor does, and read the journal."""
        self.known = RunState(self.plan)
        for event in self.events:
            self.known.add(event)
        self.state, self.number = self.known.attempt, self.known.number

    def hear(self, event: Event) -> None:
        """Write the event, then act on it, as Recorder and RunningAttempt do."""
        if event is KILLED:
            before = self.state
            self.resume()
            assert self.state == before
            return
        self.add(event)
        self.state, actions = decide(self.state, event)
        if isinstance(event, NodeGone):
            self.units.discard(event.rank)  # the last that a worker says
        for action in actions:
            if isinstance(action, Start):
                assert action.rank not in self.units
                self.units.add(action.rank)
            elif isinstance(action, Stop):
                self.stopped.add(action.rank)
        if self.state.verdict:
            for rank in self.units:  # a resumed supervisor repeats what its state says
                node = self.state.nodes[rank]
                assert node.has_ended or (node.stop_asked and rank in self.stopped)
        if self.state.is_over:
            self._end_attempt()

    def _end_attempt(self) -> None:
        """Go on with the next attempt, or end, as the policy says; no unit is left in between."""
        verdict = self.state.verdict
        assert verdict is not None
        assert not self.units
        self.resume()
        assert self.state.verdict == verdict
        step = next_step(self.number, verdict, self.known.attempt, POLICY, 300)
        if step is None:
            self.verdict = verdict
            self.add(FINISHED)
            return
        self.add(AttemptEnded(self.number, 3, 1, 0, "failed", 0))
        if isinstance(step, WaitForNodes):
            self.add(WaitingForNodes((), 60))
        self.add(AttemptStarted(self.number + 1))
        self.stopped.clear()
        self.resume()


def finish(life: Life) -> None:
    """Let the nodes end as they must once nobody disturbs: jobs exit, workers say goodbye."""
    for _ in range(POLICY.attempts if POLICY else 1):
        for event in (NodePrepared(0), NodeExited(0, 0, None), NodeGone(0, "ended")):
            for rank in range(3):
                if life.verdict is None:
                    life.hear(change(event, rank=rank))


@given(WANTED, st.data())
def test_any_order_of_events_ends_in_a_final_state_with_every_unit_stopped(
    wanted: list[set[str]], data: st.DataObject
) -> None:
    entries: Entries = tuple(
        Entry(f"job-{place}", tuple(sorted(nodes))) for place, nodes in enumerate(wanted)
    )
    lives: dict[str, Life] = {}
    while entries:
        for run_id in waiting_runs(entries):
            if not runs_ahead(entries, run_id) and (not lives or data.draw(st.booleans())):
                entries, lives[run_id] = set_state(entries, run_id, STARTED), Life()
        assert lives, "somebody may always begin"
        used = [name for entry in entries if entry.state == STARTED for name in entry.nodes]
        assert len(used) == len(set(used))
        run_id = data.draw(st.sampled_from(sorted(lives)))
        life = lives.pop(run_id)
        begin = [NodePrepared(rank) for rank in data.draw(st.permutations(range(3)))]
        for event in (*begin[: data.draw(st.sampled_from([0, 3, 3]))], *data.draw(EVENTS)):
            if life.verdict is None:
                life.hear(event)
        finish(life)
        assert life.verdict is not None
        assert life.verdict.status in ("done", "failed", "stopped")
        assert not life.units
        life.resume()
        assert life.known.is_finished
        assert life.number <= 3, "`attempts` of the plan"
        starts = [event.number for event in life.events if isinstance(event, AttemptStarted)]
        assert starts == list(range(2, life.number + 1))
        entries = tuple(entry for entry in entries if entry.run_id != run_id)
