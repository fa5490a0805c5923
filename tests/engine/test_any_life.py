"""Runs with retry and a queue, whose supervisors are killed: every order of events ends well.

A model of a run's whole life out of the pure parts: the queue's choice, the decisions of an attempt
and of those between attempts, and the memory that the journal is. No clock, files or processes.
"""

from dataclasses import dataclass, field
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from engine.agent.decisions import decide
from engine.agent.queue import STARTED, Entries, Entry, runs_ahead, set_state, waiting_runs
from engine.agent.resuming import Recorded, event_of
from engine.agent.retry import Attempt, GiveUp, Policy, WaitForNodes, next_step
from engine.agent.states import Start, Stop, Verdict, is_over
from engine.contract.plan import LaunchPlan
from tests.engine.conftest import make_plan

NODES = ("node0", "node1", "node2")
PLAN = make_plan(nodes=3, retry={"attempts": 3, "backoff": "1s"})
POLICY = Policy.of(PLAN)
WANTED = st.lists(st.sets(st.sampled_from(NODES), min_size=1), min_size=1, max_size=4)
RANKS = st.integers(0, 2)
OF_NODES = st.sampled_from(
    [
        *[{"kind": "node_prepared"}] * 4,
        *[{"kind": "node_ready"}] * 2,
        {"kind": "node_exited", "exit_code": 0},
        {"kind": "node_exited", "exit_code": 7},
        {"kind": "node_not_prepared", "reason": "no image"},
        {"kind": "node_lost", "reason": "silent"},
        {"kind": "node_gone", "reason": "ended"},
        {"kind": "node_interrupted", "action": "terminate", "at": "soon"},
    ]
)
OF_RUN = st.sampled_from(
    [
        {"kind": "stop_asked", "reason": "asked"},
        {"kind": "duration_over", "seconds": 60},
        {"kind": "head_ending"},
        {"kind": "output_stopped", "seconds": 60},
        {"kind": "nodes_healed", "addresses": {"node1": "10.0.0.9"}},
    ]
)
EVENTS = st.lists(
    st.one_of(
        st.builds(lambda rank, of: {**of, "rank": rank}, RANKS, OF_NODES),
        OF_RUN,
        st.just({"kind": "killed"}),
    ),
    max_size=40,
)


@dataclass
class Life:
    """A run from its start: its journal, its state, and the units that run on its nodes."""

    plan: LaunchPlan = field(default_factory=lambda: PLAN)
    lines: list[dict[str, Any]] = field(default_factory=list)
    units: set[int] = field(default_factory=set)
    stopped: set[int] = field(default_factory=set)
    verdict: Verdict | None = None

    def __post_init__(self) -> None:
        self.add({"kind": "run_started"})
        self.resume()

    def add(self, line: dict[str, Any]) -> None:
        self.lines.append({"time": 1.0, **line})

    def resume(self) -> None:
        """Forget everything, as a killed supervisor does, and read the journal."""
        self.known = Recorded(self.plan)
        for line in self.lines:
            self.known.add(line)
        self.state, self.number = self.known.state, self.known.number

    def hear(self, line: dict[str, Any]) -> None:
        """Write the line, then act on it, as Recorder and RunningAttempt do."""
        if line["kind"] == "killed":
            before = self.state
            self.resume()
            assert self.state == before
            return
        self.add(line)
        event = event_of({"time": 1.0, **line})
        if event is None:
            return
        self.state, actions = decide(self.state, event)
        if line["kind"] == "node_gone":
            self.units.discard(line["rank"])  # the last that a worker says
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
        if is_over(self.state):
            self._end_attempt()

    def _end_attempt(self) -> None:
        """Go on with the next attempt, or end, as the policy says; no unit is left in between."""
        verdict = self.state.verdict
        assert verdict is not None
        assert not self.units
        self.resume()
        assert self.state.verdict == verdict
        step = next_step(Attempt(self.number, verdict, frozenset(self.known.lost)), POLICY)
        if isinstance(step, GiveUp):
            self.verdict = verdict
            self.add({"kind": "run_finished"})
            return
        self.add({"kind": "attempt_ended"})
        if isinstance(step, WaitForNodes):
            self.add({"kind": "waiting_for_nodes"})
        self.add({"kind": "attempt_started", "number": self.number + 1})
        self.stopped.clear()
        self.resume()


def finish(life: Life) -> None:
    """Let the nodes end as they must once nobody disturbs: jobs exit, workers say goodbye."""
    for _ in range(POLICY.attempts if POLICY else 1):
        for kind in ("node_prepared", "node_exited", "node_gone"):
            for rank in range(3):
                if life.verdict is None:
                    life.hear({"kind": kind, "rank": rank, "exit_code": 0, "reason": "ended"})


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
        begin = [
            {"kind": "node_prepared", "rank": rank} for rank in data.draw(st.permutations(range(3)))
        ]
        for line in begin[: data.draw(st.sampled_from([0, 3, 3]))] + data.draw(EVENTS):
            if life.verdict is None:
                life.hear(line)
        finish(life)
        assert life.verdict is not None
        assert life.verdict.status in ("done", "failed", "stopped")
        assert not life.units
        life.resume()
        assert life.known.is_finished
        assert life.number <= 3, "`attempts` of the plan"
        starts = [line["number"] for line in life.lines if line["kind"] == "attempt_started"]
        assert starts == list(range(2, life.number + 1))
        entries = tuple(entry for entry in entries if entry.run_id != run_id)
