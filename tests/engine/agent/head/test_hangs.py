"""Jobs that hang, on real agents: their ranks are examined, and what the run does then."""

import asyncio
import zipfile
from io import BytesIO
from pathlib import Path
from typing import Any

import pytest

from engine.agent.node.evidence import FOLDER
from engine.analysis.report import timeline
from engine.contract.event import Event
from engine.contract.head_events import AttemptEnded, HangJudged
from engine.contract.plan import LaunchPlan
from engine.contract.verdict import TIMED_OUT
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.record.result import ResultCollector
from engine.session.bundle import agent_bundle
from tests.engine.conftest import LocalCluster, make_inventory, make_run

pytestmark = pytest.mark.slow

JOB = """\
import os, signal, sys, time
sys.path.insert(0, os.environ["LIBRARIES"])
from torch.distributed.distributed_c10d import all_reduce

def load():
    while not os.path.exists(os.environ["GOES_ON"]):
        time.sleep(0.05)

def train():
    if os.environ["RANK"] == "2":
        if os.environ["FAULT"] == "stopped":
            os.kill(os.getpid(), signal.SIGSTOP)
        load()
        open(os.environ["GOES_ON"], "w").close()
    all_reduce(os.environ["GOES_ON"])
    os.write(1, f"done {os.environ['RANK']}\\n".encode())  # one write: ranks share the pipe

train()
"""
COLLECTIVE = """\
import os, time

def all_reduce(path):
    while not os.path.exists(path):
        time.sleep(0.05)
"""
"""In the place of torch's: a function of that file waits for all ranks."""
LAUNCH = """\
for local in 0 1; do
  RANK=$((2 * GPUCTL_NODE_RANK + local)) LOCAL_RANK=$local WORLD_SIZE=4 python3 $JOB &
done
wait
"""
IN_LOAD = "rank 2 (node1) waits in load (job.py:7); the 3 others wait in all_reduce (job.py:15)"


@pytest.fixture
def cluster(cluster: LocalCluster) -> LocalCluster:
    """A cluster to which gpuctl has sent its agent with py-spy."""
    agent = cluster.folder / "agent.pyz"
    agent.unlink()
    with zipfile.ZipFile(BytesIO(agent_bundle(with_stacks=True).data)) as archive:
        archive.extractall(agent)
    return cluster


def make_plan(cluster: LocalCluster, fault: str, **fields: Any) -> LaunchPlan:
    """A run of two ranks on each of two nodes, of which rank 2 hangs until a file exists."""
    distributed = cluster.folder / "site-packages" / "torch" / "distributed"
    distributed.mkdir(parents=True)
    (distributed / "distributed_c10d.py").write_text(COLLECTIVE)
    job = cluster.folder / "job.py"
    job.write_text(JOB)
    env = {
        "JOB": str(job),
        "FAULT": fault,
        "LIBRARIES": str(distributed.parents[1]),
        "GOES_ON": str(cluster.folder / "goes-on"),
    }
    # Other tests' jobs run on this machine too: this one has an id of its own.
    run = make_run(commands=(LAUNCH,), env=env, **fields)
    return launch_plan(run, make_inventory(2), new_run_id("job"))


def judged(cluster: LocalCluster) -> list[HangJudged]:
    return [event for event in cluster.events() if isinstance(event, HangJudged)]


def run(cluster: LocalCluster, plan: LaunchPlan, until: type[Event]) -> str:
    """Run the plan to its end; let its ranks go on after an event of the kind `until`."""

    def see(event: Event) -> None:
        if isinstance(event, until):
            (cluster.folder / "goes-on").touch()

    return asyncio.run(cluster.supervisor(plan, see=see).run()).status


def test_run_stops_and_names_the_rank_that_is_stopped(cluster: LocalCluster) -> None:
    plan = make_plan(cluster, "stopped", hang={"after": "2s", "action": "stop"})
    verdict = cluster.execute(plan)
    assert (verdict.status, verdict.exit_code, verdict.first_failed_rank) == (
        "failed",
        TIMED_OUT,
        1,
    )
    assert verdict.reason == (
        "no node has printed a line for 2 s (hang): rank 2 (node1) is stopped"
        " (by SIGSTOP or SIGTSTP)"
    )


def test_run_that_only_reports_goes_on_with_the_stuck_rank(cluster: LocalCluster) -> None:
    plan = make_plan(cluster, "load", hang={"after": "2s"})
    assert run(cluster, plan, HangJudged) == "done"
    (event,) = judged(cluster)
    assert event.text == f"no node has printed a line for 2 s (hang): {IN_LOAD}"
    assert (event.rank, event.action, event.level) == (1, "report", "warning")
    results = ResultCollector()
    for each in cluster.events():
        results.see(each)
    result = results.result()
    assert result is not None
    assert result.warnings == (event.text,)
    moments = [moment.text for moment in timeline(cluster.events()).moments]
    assert f"warning: {event.text}" in moments
    assert sorted((cluster.output(0) + cluster.output(1)).splitlines()) == [
        f"done {rank}" for rank in range(4)
    ]
    stacks = [(cluster.folder / FOLDER / f"node{n}" / "ranks.txt").read_text() for n in (0, 1)]
    assert [text.count("\n  train (") for text in stacks] == [2, 2]
    assert stacks[1].startswith("rank 2: python3, pid ")
    assert f"\n  load ({cluster.folder}/job.py:7)\n" in stacks[1]
    assert "LIBRARIES" not in "".join(stacks)


def test_run_restarts_by_its_retry(cluster: LocalCluster) -> None:
    plan = make_plan(
        cluster,
        "load",
        hang={"after": "2s", "action": "restart"},
        retry={"attempts": 2, "backoff": "1s"},
    )

    assert run(cluster, plan, AttemptEnded) == "done"
    (ended,) = (event for event in cluster.events() if isinstance(event, AttemptEnded))
    assert ended.reason == f"no node has printed a line for 2 s (hang): {IN_LOAD}"


def test_nodes_with_another_processor_still_say_which_rank_is_stopped(
    cluster: LocalCluster,
) -> None:
    (cluster.folder / "agent.pyz" / "py-spy").write_bytes(b"\x7fELF")
    plan = make_plan(cluster, "stopped", hang={"after": "2s", "action": "stop"})
    assert cluster.execute(plan).reason.endswith(
        "(hang): rank 2 (node1) is stopped (by SIGSTOP or SIGTSTP)"
    )
    text = Path(cluster.folder / FOLDER / "node0" / "ranks.txt").read_text()
    assert "no Python stacks: py-spy cannot be started: Exec format error\n" in text
    assert "state S hrtimer_nanosleep\n" in text
