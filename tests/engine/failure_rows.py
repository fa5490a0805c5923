"""Rows of docs/look-up/failures.md on two machines: what happens, and what gpuctl makes of it.

Tests and benchmarks/failures.py use them. Each row does to a real run what its name says.
"""

import asyncio
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from engine.contract.event import Event
from engine.contract.worker_events import Output
from engine.record.result import RunResult
from engine.session import session
from nodes.inventory import Inventory
from tests.engine.machines import MPI_JOB, job, on

HIT = "date '+hit %s.%N'"
"""Prints the time at which a failure begins."""
READY = "goes on"
RANK_1 = "if [ $DSTACK_NODE_RANK = 1 ]; then {}; fi; sleep 1000"
RANK_0 = "if [ $DSTACK_NODE_RANK = 0 ]; then {}; fi; sleep 1000"
GRANDCHILDREN = "setsid sleep 1234 & setsid -f sleep 1235"
LONG_MPI_JOB = MPI_JOB.replace("-e 64K", "-e 4M -n 2000")  # some rows at once, more for minutes
FIRST_ROW = "           8 "
INCOMPLETE = "; all_reduce on node0 is incomplete: it ended at .*"
_MARKS = ("node_exited", "node_lost", "node_unreachable", "output_stopped", "duration_over")
"""Events in which a failure is first seen."""


@dataclass(frozen=True)
class Row:
    """A row: the job, what happens to it, and the run's exit code and reason (a pattern).

    `hit` are a node's rank and a shell command on it, `{run}` being the run's id; it is executed
    when the job has printed a line that begins with `after`. Without it the job fails by itself.
    `fields` are of the run file.
    """

    name: str
    command: str
    code: int
    reason: str
    hit: tuple[int, str] | None = None
    after: str = READY
    fields: dict[str, Any] = field(default_factory=dict)


ROWS = (
    Row(
        "the master exits with 0",
        RANK_0.format(f"{GRANDCHILDREN}; {HIT}; exit 0"),
        0,
        "the master is done",
        fields={"stop_criteria": "master-done"},
    ),
    Row(
        "the master exits with 3",
        RANK_0.format(f"{GRANDCHILDREN}; {HIT}; exit 3"),
        3,
        r"node0: exited with 3",
    ),
    Row(
        "the master is ended by a signal",
        RANK_0.format(f"{HIT}; kill -SEGV $$"),
        139,
        r"node0: killed by SIGSEGV \(139\): .*",
    ),
    Row(
        "a worker exits with 0",
        "if [ $DSTACK_NODE_RANK = 0 ]; then sleep 1; fi; " + HIT,
        0,
        "all nodes are done",
    ),
    Row(
        "a worker exits with 5",
        RANK_1.format(f"{GRANDCHILDREN}; {HIT}; exit 5"),
        5,
        r"node1: exited with 5",
    ),
    Row(
        "a worker hangs",
        "[ $DSTACK_NODE_RANK = 1 ] || exec sleep 1000;"
        f" for i in $(seq 3000); do echo {READY}; sleep 0.1; done",
        124,
        r"no node has printed a line for 2 s \(no_output_timeout\)",
        (1, "pkill -STOP -f 'job-[1].sh'"),
        fields={"no_output_timeout": "2s"},
    ),
    Row(
        "mpirun is killed",
        LONG_MPI_JOB,
        137,
        rf"node0: killed by SIGKILL \(137\){INCOMPLETE}",
        (0, "pkill -KILL -x mpirun"),
        FIRST_ROW,
    ),
    Row(
        "one orted is killed",
        LONG_MPI_JOB,
        205,
        rf"node0: exited with 205: mpirun lost its daemon on node1{INCOMPLETE}",
        (1, "pkill -KILL -x orted"),
        FIRST_ROW,
    ),
    Row(
        "a worker of gpuctl is killed",
        f"echo {READY}; sleep 1000",
        137,
        r"node1: killed by SIGKILL \(137\): the job killed gpuctl's agent, .*",
        (1, "systemctl kill -s KILL --kill-who=main gpuctl-run-{run}-1"),
    ),
)


@dataclass
class Shown:
    """What a run showed: its result, and seconds from the failure to its notice and to the end."""

    result: RunResult
    events: list[Event]
    noticed: float | None
    ended: float


def show(row: Row, there: Inventory, runs: Path) -> Shown:
    """Let the row happen to a run."""
    plan = job(there, row.command, **row.fields)
    events: list[Event] = []
    hits: list[float] = []
    hitting: list[threading.Thread] = []

    def hit() -> None:
        assert row.hit is not None
        rank, command = row.hit
        hits.append(_time(on(there, rank, f"{HIT}; {command.format(run=plan.run_id)}")))

    def see(event: Event) -> None:
        events.append(event)
        if not isinstance(event, Output):
            return
        lines = event.text.split("\n")
        hits.extend(_time(line) for line in lines if row.hit is None and line.startswith("hit "))
        is_time = event.rank == (row.hit or (0,))[0] or row.after != READY
        if row.hit and not hitting and is_time and any(x.startswith(row.after) for x in lines):
            hitting.append(threading.Thread(target=hit))
            hitting[0].start()

    result = asyncio.run(session.run(plan, there, runs, see))
    for thread in hitting:
        thread.join()
    (last,) = [event.time for event in events if event.kind == "run_finished"]
    marks = [event.time for event in events if event.kind in _MARKS and event.time >= hits[0]]
    return Shown(result, events, marks[0] - hits[0] if marks else None, last - hits[0])


def _time(text: str) -> float:
    """Return the time in what HIT printed."""
    return float(text.split()[1])
