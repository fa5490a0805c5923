"""The ranks of a job among the processes of this machine, by the variables of their launchers."""

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from engine.agent.node.rank_processes import examine
from engine.contract.codec import to_json

pytestmark = pytest.mark.slow

Start = Callable[..., int]
BLOCKS = [sys.executable, "-c", "import os; print(flush=True); os.read(0, 1)"]
RUN = f"job-{os.getpid():06x}"


@pytest.fixture
def start() -> Iterator[Start]:
    """Start a process of the run that waits in the kernel, and return its id."""
    started = []

    def begin(*argv: str, **variables: str) -> int:
        environment = {"GPUCTL_RUN_ID": RUN, "GPUCTL_NODE_RANK": "1", **variables}
        process = subprocess.Popen(
            argv or BLOCKS, env=environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )
        started.append(process)
        assert process.stdout is not None
        process.stdout.readline()  # it runs
        return process.pid

    yield begin
    for process in started:
        process.communicate(b"\n")


def ranks() -> list[tuple[int, int | None, int | None]]:
    processes = examine(RUN, "1").processes
    return [(process.pid, process.rank, process.size) for process in processes]


def test_ranks_are_those_of_the_innermost_launcher(start: Start) -> None:
    start(RANK="0", WORLD_SIZE="2")  # of a node, as in ddp
    start(SLURM_PROCID="1", SLURM_NTASKS="2", RANK="1", WORLD_SIZE="2")
    first = start(RANK="2", WORLD_SIZE="4", LOCAL_RANK="0", SLURM_PROCID="1", SLURM_NTASKS="2")
    assert ranks() == [(first, 2, 4)]


@pytest.mark.parametrize(
    ("rank", "size"),
    [
        ("OMPI_COMM_WORLD_RANK", "OMPI_COMM_WORLD_SIZE"),
        ("PMI_RANK", "PMI_SIZE"),
        ("HOROVOD_RANK", "HOROVOD_SIZE"),
        ("SLURM_PROCID", "SLURM_NTASKS"),
        ("RANK", "WORLD_SIZE"),
    ],
)
def test_each_launcher_gives_rank_and_size(start: Start, rank: str, size: str) -> None:
    pid = start(**{rank: "3", size: "8"})
    assert ranks() == [(pid, 3, 8)]


def test_main_process_of_a_rank_is_its_first_program_that_is_no_shell(start: Start) -> None:
    child = "import os, sys; os.fork() or print(flush=True); os.read(0, 1)"
    script = f"{sys.executable} -c '{child}'; true"
    shell = start("bash", "-c", script, OMPI_COMM_WORLD_RANK="0", OMPI_COMM_WORLD_SIZE="1")
    ((main, rank, _),) = ranks()
    assert rank == 0
    stat = Path(f"/proc/{main}/stat").read_text()
    assert int(stat.rpartition(")")[2].split()[1]) == shell
    subprocess.run(["pkill", "--parent", str(main)], check=True)


def test_processes_without_a_rank_are_those_without_children(start: Start) -> None:
    pid = start()
    assert ranks() == [(pid, None, None)]


def test_processes_of_other_runs_and_nodes_and_their_environments_stay_out(start: Start) -> None:
    start(GPUCTL_NODE_RANK="0")
    start(GPUCTL_RUN_ID="job-other")
    start(RANK="0", WORLD_SIZE="1", TOKEN="correct-horse")
    seen = examine(RUN, "1")
    assert [process.rank for process in seen.processes] == [0]
    assert "correct-horse" not in str(to_json(seen))


def test_process_that_waits_is_shown_with_the_kernels_state(start: Start) -> None:
    start(RANK="0", WORLD_SIZE="1", LOCAL_RANK="0")
    (process,) = examine(RUN, "1").processes
    assert (process.state, process.has_run) == ("S", False)
    assert "pipe_read" in process.wchan
    assert f"thread {process.pid}" in process.text
