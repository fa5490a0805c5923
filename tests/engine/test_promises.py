"""Times that the documentation promises are those of the code."""

from pathlib import Path

import pytest

from engine.agent import heartbeat, interruption, output
from engine.agent.launcher import STOP_GRACE_S
from engine.agent.supervisor import ACKNOWLEDGE_S, STOP_BOUND_S
from engine.session import RECONNECT_S

DOCS = Path(__file__).parents[2] / "docs"


@pytest.mark.parametrize(
    ("promise", "seconds", "actual"),
    [
        ("what launchers started there, {} seconds, then SIGKILL", 10, STOP_GRACE_S),
        ("cgroup: SIGTERM, up to {} seconds more, SIGKILL", 10, STOP_GRACE_S),
        ("has not ended its part within {} seconds of being told is given up", 30, STOP_BOUND_S),
        ("asks the instance's metadata every {} seconds", 5, interruption.LOOK_S),
        ("at its end the supervisor waits {} seconds", 60, ACKNOWLEDGE_S),
        ("and where it hangs after {}; they stop their jobs", 120, heartbeat.HUNG_S),
        ("where the network is cut within {} seconds", 20, heartbeat.HEAD_SILENCE_S),
        ("A node that has not been heard for {} seconds is lost", 15, heartbeat.SILENCE_S),
        ("A line that takes its time is sent in pieces after a second.", 1, output.PARTIAL_S),
        ("the client connects again, for five minutes", 5 * 60, RECONNECT_S),
    ],
)
def test_times_of_runs(promise: str, seconds: int, actual: float) -> None:
    assert promise.format(seconds) in (DOCS / "runs.md").read_text()
    assert actual == seconds
