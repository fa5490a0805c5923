"""One notice for each event, for people who want to see what a run's notifications look like."""

from collections.abc import Iterator

from engine.agent.journal.clock import time_of_day
from engine.agent.notify.notices import Notice, Notices, iso
from engine.contract.head_events import (
    AttemptEnded,
    BudgetNearing,
    LeaseEnding,
    RunFinished,
    RunStarted,
    WaitingForNodes,
)
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import NodeInterrupted, NoticeGiven

_REASON = "{}: exited with 1"


def _stop_notice(time: float, at: float) -> NoticeGiven:
    text = f"the run is stopped at {time_of_day(at)}, in 5 min"
    return NoticeGiven(None, "stop", at, text, time=time)


def examples(plan: LaunchPlan, at: float) -> Iterator[Notice]:
    """Yield a notice for each event, in the order of config/run/notify.py.

    `at` is the time at which the example begins.
    """
    name = plan.nodes[0].name
    attempts = plan.retry.attempts if plan.retry else 3
    reason = _REASON.format(name)
    read = Notices(plan).read
    for event in (
        RunStarted(
            run_id=plan.run_id,
            name=plan.name,
            cluster=plan.cluster,
            startup_order=plan.startup_order,
            stop_criteria=plan.stop_criteria,
            on_stop=plan.on_stop,
            nodes=(),
            time=at,
        ),
        AttemptEnded(1, attempts, 1, 0, reason, pause_s=5, time=at + 600),
        WaitingForNodes((name,), seconds=3600, time=at + 900),
        NodeInterrupted(0, "terminate", iso(at + 1320), time=at + 1200),
        _stop_notice(at + 1500, at + 1800),
        LeaseEnding(at + 7200, time=at + 6300),
        BudgetNearing(80.0, 100.0, at + 8100, time=at + 6480),
        RunFinished("failed", 1, 0, reason, time=at + 6600),
        RunFinished("done", 0, None, "", time=at + 6600),
    ):
        notice = read(event)
        assert notice is not None
        yield notice
