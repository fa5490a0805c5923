"""A worker's events that cannot be read: the run goes on, and its warnings name them."""

import asyncio
import json
import shlex
import sys
from asyncio.subprocess import PIPE, Process
from pathlib import Path
from typing import Any

import pytest

from engine.agent.head.run_state import RunState
from engine.agent.judge.output_reader import OutputReader
from engine.agent.link.launcher import HELD
from engine.contract.head_events import OutputJudged
from engine.record.result import ResultCollector
from tests.engine.bare_events import printed
from tests.engine.conftest import LocalCluster, LocalLauncher, make_plan


class LinesFirst(LocalLauncher):
    """Rank 1's worker sends these lines first."""

    def __init__(self, folder: Path, lines: list[str]) -> None:
        super().__init__(folder, folder / "agent.pyz")
        self._lines = lines

    async def open(self, rank: int) -> Process:
        if rank != 1:
            return await super().open(rank)
        worker = shlex.join([sys.executable, str(self._agent), "work", str(self.home(rank))])
        prints = shlex.join(["printf", r"%s\n", *self._lines])
        argv = ("bash", "-c", f"{prints}; exec {worker}")
        self.processes[rank] = await asyncio.create_subprocess_exec(
            *argv, stdin=PIPE, stdout=PIPE, stderr=PIPE, limit=HELD
        )
        return self.processes[rank]


def warnings(cluster: LocalCluster) -> tuple[str, ...]:
    collector = ResultCollector()
    for event in cluster.events():
        collector.see(event)
    result = collector.result()
    assert result is not None
    assert result.status == "done"
    return result.warnings


@pytest.mark.parametrize(
    ("event", "why"),
    [
        ({"kind": "node_exited", "rank": 1, "signal": None}, "NodeExited.exit_code is missing"),
        ({"kind": "node_started", "rank": 1, "pid": "seven"}, "NodeStarted.pid is no int"),
        (
            {"kind": "network_seen", "rank": 1, "level": "no", "text": "secret"},
            "NetworkSeen.level is none of proof, warning, fault",
        ),
    ],
)
def test_a_malformed_event_of_a_worker_is_one_warning_of_its_node(
    cluster: LocalCluster, event: dict[str, Any], why: str
) -> None:
    cluster.launcher = LinesFirst(cluster.folder, 3 * [json.dumps(event)])
    assert cluster.execute(make_plan(commands=("true",))).status == "done"
    kind = event["kind"]
    expected = f"node1 sent a malformed event `{kind}`, which is left out: {why}"
    assert warnings(cluster) == (expected,)
    (warning,) = (event for event in cluster.events() if isinstance(event, OutputJudged))
    assert (warning.rank, warning.level) == (1, "warning")


def test_words_of_a_login_and_events_of_a_newer_agent_are_no_warnings(
    cluster: LocalCluster,
) -> None:
    lines = ["Welcome!", '{"kind": "node_dreamt"}', '{"kind": 7}', "[7]", "[" * 50_000]
    cluster.launcher = LinesFirst(cluster.folder, lines)
    assert cluster.execute(make_plan(commands=("true",))).status == "done"
    assert warnings(cluster) == ()


def test_the_next_supervisor_knows_which_malformed_events_are_reported() -> None:
    """And it does not count the warning as a finding of the output that it reads again."""
    plan = make_plan()
    pipe = "gpuctl: in a pipe of entry 1 of the commands, part 1 of 2 ended with 1"
    warning = OutputJudged(1, "warning", "node1 sent …", malformed="node_exited")
    recorded, output = RunState(plan), OutputReader(plan)
    read, finding = OutputReader(plan).read(printed(pipe))
    for event in (read, warning):
        recorded.add(event)
        output.replay(event)
    assert recorded.malformed == {(1, "node_exited")}
    assert output.unrecorded == [finding]
