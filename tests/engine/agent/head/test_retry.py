"""What follows on the end of an attempt, and the time limits of one: pure."""

from collections.abc import Callable, Collection
from dataclasses import replace
from operator import itemgetter
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from config.run.retry import CAUSES
from engine.agent.head.attempt_runner import Limits
from engine.agent.head.run_state import (
    Again,
    WaitForNodes,
    next_step,
    replace_addresses,
)
from engine.contract.event import Event
from engine.contract.head_events import (
    AttemptStarted,
    NodeLost,
    OutputStopped,
    StartupOver,
)
from engine.contract.plan import HangPlan, RetryPlan
from engine.contract.verdict import Status, Verdict
from engine.contract.worker_events import (
    NodeInterrupted,
    NodePrepared,
    NodeReady,
    Output,
    RankStarted,
)
from tests.engine.agent.head.test_states import feed, make_state
from tests.engine.conftest import make_plan
from tests.engine.read_output import TablesOfOutput

pytestmark = pytest.mark.slow

ALL = tuple(CAUSES)


def failed(cause: str) -> Verdict:
    return Verdict("failed", 1, 0, "node0 failed", cause=cause)


def policy(**fields: Any) -> RetryPlan:
    return RetryPlan(**{"attempts": 3, "on": ALL, "backoff_s": 5, "node_wait_s": 60, **fields})


Step = Again | WaitForNodes | None


def step_after(
    number: int,
    verdict: Verdict,
    policy: RetryPlan | None,
    lost: Collection[int] = (),
    reclaimed: Collection[int] = (),
) -> Step:
    """What follows on an attempt on three nodes."""
    notices = [NodeInterrupted(rank, "terminate", "soon") for rank in reclaimed]
    state, _ = feed(make_state(3), *notices, *(NodeLost(rank, "silent") for rank in lost))
    return next_step(number, verdict, state, policy, 300)


@pytest.mark.parametrize("cause", CAUSES)
def test_only_failures_that_the_run_file_names_are_retried(cause: str) -> None:
    assert step_after(1, failed(cause), policy(on=(cause,))) == Again(5)
    assert step_after(1, failed(cause), policy(on=tuple(set(ALL) - {cause}))) is None
    assert step_after(1, failed(cause), None) is None


@pytest.mark.parametrize("status", ["done", "stopped"])
def test_a_run_that_has_not_failed_is_over(status: Status) -> None:
    assert step_after(1, Verdict(status, 0, None, ""), policy(), lost={1}) is None


def test_a_failure_without_a_cause_is_never_retried() -> None:
    assert step_after(1, failed(""), policy(), lost={1}) is None


def test_the_pause_doubles_up_to_a_limit() -> None:
    many = policy(attempts=100)
    steps = [step_after(number, failed("exit-code"), many) for number in range(1, 9)]
    pauses = [step.seconds for step in steps if isinstance(step, Again)]
    assert pauses == [5, 10, 20, 40, 80, 160, 300, 300]
    long = policy(attempts=100, backoff_s=400)
    assert step_after(99, failed("exit-code"), long) == Again(400)


def test_a_lost_node_counts_although_a_rank_failed_first() -> None:
    only = policy(on=("node-lost",))
    assert step_after(1, failed("exit-code"), only, lost={2}) == WaitForNodes((2,), 60)
    assert step_after(1, failed("exit-code"), only) is None


def test_a_reclaimed_node_counts_as_reclaimed_and_not_as_lost() -> None:
    only = policy(on=("preemption",))
    assert step_after(1, failed("exit-code"), only, reclaimed={1}) == WaitForNodes((1,), 60)
    lost = policy(on=("node-lost",))
    assert step_after(1, failed("preemption"), lost, lost={1}, reclaimed={1}) is None


@given(
    st.integers(2, 50),
    st.lists(st.tuples(st.sampled_from([*CAUSES, ""]), st.booleans()), min_size=60, max_size=60),
)
def test_every_run_ends(most: int, failures: list[tuple[str, bool]]) -> None:
    ended = 0
    for cause, is_lost in failures:
        ended += 1
        lost = {1} if is_lost else set()
        if step_after(ended, failed(cause), policy(attempts=most), lost) is None:
            break
    assert ended <= most
    assert ended == most or failures[ended - 1][0] == ""


def test_new_addresses_are_everywhere_and_only_where_they_were() -> None:
    before = make_plan(nodes=3, commands=("echo 10.213.1.11 10.213.1.110 110.213.1.11",))
    after = replace_addresses(before, {"node1": "10.213.1.12", "node2": "10.213.1.11", "x": "1"})
    assert [node.private_ip for node in after.nodes] == [
        "10.213.1.10",
        "10.213.1.12",
        "10.213.1.11",
    ]
    ips = "10.213.1.10\n10.213.1.12\n10.213.1.11"
    assert after.nodes[0].environment["GPUCTL_NODES_IPS"] == ips
    assert after.cluster_ips == tuple(ips.split())
    assert "echo 10.213.1.12 10.213.1.110 110.213.1.11" in after.nodes[0].script
    assert replace_addresses(before, {"node1": "10.213.1.11"}) is before


class Clock:
    """A loop's clock: `pass_to` calls the timers that are due."""

    def __init__(self) -> None:
        self.now = 0.0
        self._timers: list[tuple[float, Callable[[], None]]] = []

    def time(self) -> float:
        return self.now

    def call_later(self, seconds: float, call: Callable[..., None], *words: Any) -> None:
        self._timers.append((self.now + seconds, lambda: call(*words)))

    def pass_to(self, now: float) -> None:
        while due := sorted((one for one in self._timers if one[0] <= now), key=itemgetter(0)):
            self._timers.remove(due[0])
            self.now = due[0][0]
            due[0][1]()
        self.now = now


def test_output_renews_the_time(monkeypatch: pytest.MonkeyPatch) -> None:
    clock, recorded = Clock(), list[tuple[str, int]]()
    monkeypatch.setattr("engine.agent.head.attempt_runner.asyncio.get_running_loop", lambda: clock)

    def record(event: Event) -> None:
        assert isinstance(event, (StartupOver, OutputStopped))
        recorded.append((event.kind, event.seconds))

    plan = replace(make_plan(), startup_timeout_s=30, no_output_timeout_s=10)
    watch = Limits(plan, record, lambda: None, make_state(2).nodes, None)
    watch.__enter__()
    clock.pass_to(20)
    watch.hear()
    clock.pass_to(29)
    watch.hear()
    clock.pass_to(38)
    assert recorded == [("startup_over", 30)]
    clock.pass_to(39)
    assert recorded == [("startup_over", 30), ("output_stopped", 10)]


def test_a_hang_is_suspected_once_in_each_silence_and_never_while_a_job_prints(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    clock, suspected = Clock(), list[float]()
    monkeypatch.setattr("engine.agent.head.attempt_runner.asyncio.get_running_loop", lambda: clock)
    plan = replace(make_plan(), hang=HangPlan(5, "report"))
    nodes = make_state(2).nodes
    with Limits(plan, lambda _: None, lambda: suspected.append(clock.now), nodes, None) as limits:
        for second in range(0, 40, 4):
            clock.pass_to(second)
            limits.hear()
        assert suspected == []
        clock.pass_to(100)
        assert suspected == [41]
        limits.hear()
        clock.pass_to(200)
        assert suspected == [41, 105]


def test_a_job_has_started_when_every_rank_has() -> None:
    state, _ = feed(make_state(2, processes=1), *map(NodePrepared, (0, 1)), *map(NodeReady, (0, 1)))
    state, _ = feed(state, RankStarted(0, 0, 2))
    late, _ = feed(state, StartupOver(9))
    assert late.verdict is not None
    reason = "node1 has 0 of its 1 ranks 9 s after the start (startup_timeout)"
    assert (late.verdict.reason, late.verdict.first_failed_rank) == (reason, 1)
    state, _ = feed(state, RankStarted(1, 1, 2), StartupOver(9))
    assert state.verdict is None


def test_tables_of_each_attempt_are_kept() -> None:
    parser = TablesOfOutput()
    row = "8 2 float sum -1 30.5 0.00 0.02 0 30.9 0.00 0.00 0"
    line = Output(time=0, rank=0, stream="stdout", text=row)
    assert [parser.read(line), parser.read(line)] == [(0,), (0,)]
    parser.read(AttemptStarted(time=0, number=2))
    assert parser.read(line) == (1,)
    assert [len(table.rows) for table in parser.tables] == [2, 1]
