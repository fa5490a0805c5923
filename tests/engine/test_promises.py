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
        ("and SIGKILL after {} seconds.", 10, STOP_GRACE_S),
        ("cgroup: SIGTERM, up to {} seconds more, SIGKILL", 10, STOP_GRACE_S),
        ("has not ended its part {} seconds after the request, the supervisor", 30, STOP_BOUND_S),
        ("asks the instance's metadata every {} seconds", 5, interruption.LOOK_S),
        ("At its end the supervisor waits {} seconds", 60, ACKNOWLEDGE_S),
        ("and if the supervisor hangs, after {}.", 120, heartbeat.HUNG_S),
        ("If the network is cut, they do so within {} seconds", 20, heartbeat.HEAD_SILENCE_S),
        ("A node without a heartbeat for {} seconds is lost", 15, heartbeat.SILENCE_S),
        ("An unfinished line is sent in pieces after a second.", 1, output.PARTIAL_S),
        ("the client reconnects, for five minutes", 5 * 60, RECONNECT_S),
    ],
)
def test_times_of_runs(promise: str, seconds: int, actual: float) -> None:
    page = " ".join((DOCS / "runs.md").read_text().split())  # a line may end anywhere
    assert promise.format(seconds) in page
    assert actual == seconds
