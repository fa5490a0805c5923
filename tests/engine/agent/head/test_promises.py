"""Times that the documentation promises are those of the code."""

from pathlib import Path

import pytest

from cli.render.top import STALE_S as TOP_STALE_S
from config.run.run_file import Task
from engine.agent.journal.run_folders import AGE_S
from engine.agent.link.times import TIMES
from engine.agent.metrics import endpoint, sampler, samples
from engine.agent.metrics.endpoint import STALE_S
from engine.agent.node import interruption, output
from engine.session.following import LIMITS

GRACE_S = Task.model_fields["stop_grace"].default
DOCS = Path(__file__).parents[4] / "docs"


@pytest.mark.parametrize(
    ("promise", "seconds", "actual"),
    [
        ("SIGKILL after `stop_grace`, by default {} seconds.", 10, GRACE_S),
        ("not ended its part {} seconds after twice that time", 10, TIMES.stop_s),
        ("asks the instance's metadata every {} seconds", 5, interruption.LOOK_S),
        ("At its end the supervisor waits {} seconds", 60, TIMES.acknowledge_s),
        ("and if the supervisor hangs, after {}.", 120, TIMES.hung_s),
        ("workers stop their jobs within {} seconds", 20, TIMES.head_silence_s),
        ("no supervisor comes back within {} seconds", 120, TIMES.lost_supervisor_s),
        ("A node without a heartbeat for {} seconds is lost", 15, TIMES.silence_s),
        ("An unfinished line is sent after a second.", 1, output.PARTIAL_S),
        ("the client reconnects, for five minutes", 5 * 60, LIMITS.reconnect_s),
        ("Three minutes after the last renewal the nodes power off", 3 * 60, TIMES.lease_s),
        ("All nodes have 15 minutes to copy, and then the head as long", 15 * 60, TIMES.save_s),
        ("30 days after the last use | a tenth of the disk", 30 * 86400, AGE_S),
    ],
)
def test_times_of_runs(promise: str, seconds: int, actual: float) -> None:
    pages = ("do/runs.md", "do/detach.md", "do/logs.md", "understand/survival.md")
    text = "".join((DOCS / page).read_text() for page in pages)
    page = " ".join(text.split())  # a line may end anywhere
    assert promise.format(seconds) in page
    assert actual == seconds


@pytest.mark.parametrize(
    ("promise", "figure", "actual"),
    [
        ("sends a sample every {} seconds", 5, sampler.INTERVAL_S),
        ("(1 % utilisation at most) for {} minutes", 10, samples.IDLE_S / 60),
        ("sample of a node is older than {} seconds, its age", 20, TOP_STALE_S),
        ("whose newest sample is older than {} seconds is left out", 30, STALE_S),
        ("every 5 s at first, one a minute from {} minutes on", 100, 100),
        ("{} MiB at most: then the oldest go", 64, samples.BUDGET >> 20),
        ("answers `http://127.0.0.1:{}/metrics`", 9713, endpoint.PORT),
    ],
)
def test_figures_of_metrics(promise: str, figure: int, actual: float) -> None:
    page = " ".join((DOCS / "do/metrics.md").read_text().split())
    assert promise.format(figure) in page
    assert actual == figure
    assert samples.record_interval(100 * 60) == 60 > samples.record_interval(99 * 60)
