"""What the ranks of a job do while it runs, and a debugger for one of them."""

from pathlib import Path

import pytest

from tests.e2e.conftest import Gpuctl, read_until, run_file

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

TRAIN = """
import os, time

def load():
    os.write(1, b"up\\n")
    time.sleep(1000)

def all_reduce():
    os.write(1, b"up\\n")
    time.sleep(1000)

load() if os.environ["OMPI_COMM_WORLD_RANK"] == "3" else all_reduce()
"""
COMMANDS = ["cd $(mktemp -d)", f"cat > train.py <<'END'{TRAIN}END", "python3 train.py"]


def test_what_ranks_do_and_a_debugger_for_one(gpuctl: Gpuctl, cluster: str, tmp_path: Path) -> None:
    file = run_file(tmp_path, "stuck", COMMANDS, type="mpi", procs_per_node=2)
    with gpuctl.running("--lab", "run", str(file), "--cluster", cluster) as process:
        for _ in range(4):
            read_until(process, "] up")
        every = gpuctl.json("--lab", "debug", "stuck")
        lines = gpuctl("--lab", "debug", "stuck").splitlines()
        stacks = gpuctl("--lab", "debug", "stuck", "--rank", "3")
        absent = gpuctl("--lab", "debug", "stuck", "--rank", "4", code=2)
        dump = ["py-spy", "dump", "--pid", "{pid}"]
        dumped = gpuctl("--lab", "debug", "stuck", "--rank", "3", "--", *dump)
        gpuctl("--lab", "stop", "stuck")
        process.communicate(timeout=90)
    processes = every["processes"]
    pids = [process["pid"] for process in processes]
    assert [process["rank"] for process in processes] == [0, 1, 2, 3]
    assert [" ".join(line.split()) for line in lines] == [
        "RANK NODE PID NOW",
        f"0 node0 {pids[0]} waits in all_reduce (train.py:9)",
        f"1 node0 {pids[1]} waits in all_reduce (train.py:9)",
        f"2 node1 {pids[2]} waits in all_reduce (train.py:9)",
        f"3 node1 {pids[3]} waits in load (train.py:5)",
        "",
        "If the job hangs: rank 3 (node1) waits in load (train.py:5);"
        " the 3 others wait in all_reduce (train.py:9)",
    ]
    assert stacks.startswith(f"rank 3 (node1): python3, pid {pids[3]}\nthread {pids[3]} ")
    assert "\n  load (/tmp/" in stacks
    assert "train.py:9" not in stacks
    run = every["run_id"]
    assert absent == (
        f"gpuctl: error: rank 4 of run {run} has no process; those with one are 0-3\n"
    )
    assert f"Process {pids[3]}: python3 train.py" in dumped
    over = gpuctl("--lab", "debug", "stuck", code=2)
    assert f"run {run} is over: it has no process; " in over
