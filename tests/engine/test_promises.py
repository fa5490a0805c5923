"""Times that the documentation promises are those of the code."""

from pathlib import Path

import pytest

from engine.agent import interruption
from engine.agent.launcher import STOP_GRACE_S
from engine.agent.supervisor import ACKNOWLEDGE_S, STOP_BOUND_S
from engine.session import RECONNECT_S

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("promise", "seconds", "actual"),
    [
        ("what launchers started there, {} seconds, then SIGKILL", 10, STOP_GRACE_S),
        ("cgroup: SIGTERM, up to {} seconds more, SIGKILL", 10, STOP_GRACE_S),
        ("does not answer within {} seconds of being told is given up", 30, STOP_BOUND_S),
        ("asks the instance's metadata every {} seconds", 5, interruption.LOOK_S),
        ("at its end the supervisor waits {} seconds", 60, ACKNOWLEDGE_S),
        ("the client connects again, for five minutes", 5 * 60, RECONNECT_S),
    ],
)
def test_times_of_runs(promise: str, seconds: int, actual: float) -> None:
    assert promise.format(seconds) in (DOCS / "runs.md").read_text()
    assert actual == seconds
