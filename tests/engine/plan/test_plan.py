"""The launch plan beside its modes (test_modes.py): nodes, variables, ids, commands."""

import re
import subprocess
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from config.run.run_file import Task
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.plan.script import job_script
from tests.engine.conftest import make_inventory, make_run


def test_type_without_gpus_has_no_slots() -> None:
    plan = launch_plan(make_run(), make_inventory(2, gpus=0), "job-000001")
    node = plan.nodes[0]
    assert node.environment["DSTACK_GPUS_PER_NODE"] == node.environment["DSTACK_GPUS_NUM"] == "0"
    assert node.files == {"/var/lib/gpuctl/runs/job-000001/hostfile": "10.213.1.10\n10.213.1.11\n"}


def test_programs_of_nccl_tests_are_those_that_commands_name() -> None:
    names = (
        *("all_reduce", "all_gather", "alltoall", "alltoallv", "broadcast", "gather"),
        *("hypercube", "reduce", "reduce_scatter", "scatter", "sendrecv"),
    )
    calls = tuple(f"mpirun /opt/nccl-tests/build/{name}_perf -b 8 | tee out" for name in names)
    others = ("./all_reduce_performance", "./my_reduce_perf", "cat scatter_perfect")
    run = Task(type="task", name="job", nodes=2, commands=(*others, *calls))
    plan = launch_plan(run, make_inventory(2), "job-000001")
    assert plan.programs == tuple(f"{name}_perf" for name in names)
    run = Task(type="task", name="job", nodes=2, commands=("mpirun ./all_reduce_perf_mpi -b 8",))
    assert launch_plan(run, make_inventory(2), "job-000001").programs == ("all_reduce_perf_mpi",)


def test_run_ids_differ_and_say_which_run() -> None:
    ids = {new_run_id("nccl-tests") for _ in range(50)}
    assert len(ids) == 50
    assert all(run_id.startswith("nccl-tests-") for run_id in ids)


def bash(commands: list[str]) -> tuple[int, str]:
    done = subprocess.run(
        ["bash"], input=job_script(commands), capture_output=True, text=True, check=False
    )
    return done.returncode, done.stdout


@pytest.mark.parametrize(
    ("commands", "code", "output"),
    [
        (["echo a", "echo b"], 0, "a\nb\n"),
        (["echo a", "(exit 9)", "echo b"], 9, "a\n"),
        (["false\necho a", "echo b"], 0, "a\nb\n"),
        (["echo a; false | true", "echo b"], 0, "a\nb\n"),
        (["x=1; cd /", 'echo "$x $PWD"'], 0, "1 /\n"),
        (["if false; then\n  echo no\nfi", "echo b"], 0, "b\n"),
        (["cat <<END\ntext\nEND", "echo b"], 0, "text\nb\n"),
        (["echo a \\", "echo b"], 0, "a\nb\n"),
        (["echo a # note", "# only a comment", "echo b"], 0, "a\nb\n"),
        (["sleep 0 &", "echo b"], 0, "b\n"),
        (["set -e\nfalse\necho never", "echo b"], 1, ""),
        (["exit 0", "echo never"], 0, ""),
        (["set -u; echo a", "echo b"], 0, "a\nb\n"),
        (["readonly status=5 entry=1 part=2 of=3 i=4", "echo $status$of", "exit 4"], 4, "53\n"),
        (["gpuctl_next() { :; }", "echo a", "(exit 3)", "echo b"], 1, ""),
        (["exit() { echo mine; }; printf() { echo mine; }", "sh -c 'exit 3'", "echo b"], 3, ""),
        (["IFS=0; set -f; set -o posix", "false | true", "(exit 3)"], 3, ""),
        (["trap 'echo bye' EXIT", "echo a", "(exit 3)", "echo b"], 3, "a\nbye\n"),
    ],
)
def test_script(commands: list[str], code: int, output: str) -> None:
    assert bash(commands) == (code, output)


@settings(max_examples=15)
@given(st.lists(st.integers(0, 255), min_size=1, max_size=5))
def test_first_failing_entry_decides(codes: list[int]) -> None:
    expected = next((code for code in codes if code), 0)
    assert bash([f"(exit {code})" for code in codes])[0] == expected


@pytest.mark.parametrize(
    ("max_duration", "limit"),
    [(None, "the run has no max_duration"), (5 * 3600, "max_duration is 5:00:00"), (3600, "")],
)
def test_a_run_that_outlives_its_capacity_block_is_warned_of(
    max_duration: int | None, limit: str
) -> None:
    end = datetime.now(UTC) + timedelta(hours=2, seconds=30)
    there = make_inventory(2).model_copy(update={"ends": end})
    run = make_run().model_copy(update={"max_duration": max_duration})
    found = launch_plan(run, there, "job-000001").warnings
    if not limit:
        assert found == ()
        return
    (warning,) = found
    assert re.fullmatch(
        rf"AWS ends the nodes at {end:%Y-%m-%d %H:%M} UTC, half an hour before their capacity block"
        rf" ends, in 2:00:[0-9]+; {limit}",
        warning,
    )


def test_a_run_on_nodes_without_an_end_is_not_warned_of_it() -> None:
    assert launch_plan(make_run(), make_inventory(2), "job-000001").warnings == ()
