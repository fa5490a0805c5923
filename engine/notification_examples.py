"""One notice for each event, for people who want to see what a run's notifications look like."""

from collections.abc import Iterator

from engine.agent.notices import Notice, Notices, iso
from engine.contract.plan import LaunchPlan

_REASON = "rank 0 ({}): exited with 1"


def examples(plan: LaunchPlan, at: float) -> Iterator[Notice]:
    """Yield a notice for each event, in the order of config/run/notify.py.

    `at` is the time at which the example begins.
    """
    name = plan.nodes[0].name
    attempts = plan.retry.attempts if plan.retry else 3
    failed = {"exit_code": 1, "first_failed_rank": 0, "reason": _REASON.format(name)}
    retry = {"number": 1, "attempts": attempts, "pause_s": 5}
    spot = {"rank": 0, "action": "terminate", "at": iso(at + 1320)}
    read = Notices(plan).read
    for line in (
        {"kind": "run_started", "time": at},
        {"kind": "attempt_ended", "time": at + 600, **retry, **failed},
        {"kind": "waiting_for_nodes", "time": at + 900, "nodes": [name], "seconds": 3600},
        {"kind": "node_interrupted", "time": at + 1200, **spot},
        {"kind": "lease_ending", "time": at + 6300, "at": at + 7200},
        {"kind": "run_finished", "time": at + 6600, "status": "failed", **failed},
        {
            "kind": "run_finished",
            "time": at + 6600,
            "status": "done",
            "exit_code": 0,
            "first_failed_rank": None,
            "reason": "",
        },
    ):
        notice = read(line)
        assert notice is not None
        yield notice
