"""Events of a run with as little in them as they may have."""

from collections.abc import Sequence

from engine.agent.judge.failures import Finding
from engine.contract.event import NodeEvent
from engine.contract.head_events import (
    GateJudged,
    NetworkSeen,
    OutputJudged,
    RunFinished,
    RunQueued,
    RunStarted,
)
from engine.contract.worker_events import Output

STARTED = RunStarted(
    run_id="job-000001",
    name="job",
    cluster="demo",
    startup_order="any",
    stop_criteria="all-done",
    on_stop="keep",
    nodes=(),
)
QUEUED = RunQueued(
    run_id="job-000001",
    name="job",
    cluster="demo",
    on_stop="keep",
    nodes=(),
    place=1,
    ahead=(),
)
FINISHED = RunFinished("done", 0, None, "")


def printed(text: str, rank: int = 0, ends_line: bool = True) -> Output:
    """Output of the node, on its standard output."""
    return Output(rank, "stdout", text, ends_line)


def findings(events: Sequence[NodeEvent]) -> list[Finding]:
    """The findings of the events, each of which has one."""
    heard = [one for one in events if isinstance(one, (NetworkSeen, OutputJudged, GateJudged))]
    assert len(heard) == len(events)
    return [Finding(one.level, one.rank, one.text) for one in heard]
