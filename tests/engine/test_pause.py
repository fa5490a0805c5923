"""A pause of the network in a run of 512 nodes: the real supervisor, simulated nodes."""

import json
import resource
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

from benchmarks.floods import plan_of
from benchmarks.scale import FIRST_LINE, Watch, simulated
from engine.agent.journal.journal_file import JOURNAL
from engine.contract.codec import to_json

NODES = 512
PAUSE_S = 10.0
BUSY_S = 12.0
"""With the pause more than HEAD_SILENCE_S: a node that gets no answer meanwhile ends its job."""


def test_no_job_ends_when_all_nodes_of_a_large_run_answer_again_after_a_pause() -> None:
    """Not even while the supervisor is too busy to read what they all say."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name, open_files(4 * NODES):
        folder = Path(name)
        plan = replace(plan_of(NODES), stop_criteria="master-done")
        (folder / "plan.json").write_text(json.dumps(to_json(plan)))
        argv = [sys.executable, "-m", "benchmarks.scale_supervisor", str(folder)]
        with (
            simulated(folder, NODES) as to,
            closing(Watch(folder / JOURNAL)) as watch,
            subprocess.Popen(argv) as supervisor,
        ):
            watch.lines(NODES, FIRST_LINE)
            watch.lines(NODES, "step")
            to.send(("pause",))
            time.sleep(PAUSE_S)
            supervisor.send_signal(signal.SIGSTOP)
            to.send(("resume",))
            time.sleep(BUSY_S)
            supervisor.send_signal(signal.SIGCONT)
            watch.lines(NODES, "step")
            to.send(("exit", 0))
            watch.kind("run_finished")
        events = [json.loads(line) for line in (folder / JOURNAL).read_bytes().splitlines()]
    kinds = Counter(event["kind"] for event in events)
    assert events[-1]["reason"] == "the master is done"
    assert (kinds["node_lost"], kinds["head_silent"], kinds["node_exited"]) == (0, 0, 1)
    assert kinds["node_answers_again"] == NODES


@contextmanager
def open_files(count: int) -> Iterator[None]:
    """Let this process and those that it starts have so many open files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (max(soft, min(count, hard)), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
