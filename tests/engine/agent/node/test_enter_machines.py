"""Ranks that enter the other of two machines: by the run's own remote agent, with its secrets."""

import asyncio
import hashlib
import shlex
from pathlib import Path
from typing import Any

import pytest

from engine.contract.event import Event
from engine.contract.plan import LaunchPlan
from engine.plan.launch_plan import new_run_id
from engine.record.result import RunResult
from engine.session import session
from nodes.inventory import Inventory
from tests.engine.machines import assert_nothing_left, execute, job, on, output

pytestmark = [pytest.mark.lab, pytest.mark.thorough]


def mpi_job(there: Inventory, command: str, **fields: Any) -> LaunchPlan:
    """mpirun on node0 that enters node1 by the run's own remote agent: no ssh of the job's."""
    mpirun = (
        "mpirun --allow-run-as-root --hostfile $DSTACK_MPI_HOSTFILE --bind-to none -np 4"
        " --mca plm_rsh_agent $GPUCTL_RUN_FOLDER/bin/ssh"
        f" bash -c {shlex.quote(command)}"
    )
    commands = f"if [ $DSTACK_NODE_RANK = 0 ]; then {mpirun}; else exec sleep infinity; fi"
    order = {"startup_order": "workers-first", "stop_criteria": "master-done"}
    return job(there, commands, **order, **fields)


ODD = "two words  \"double\" 'single' $HOME `id` \\n\nsecond line\té😀;&|"


def test_ranks_enter_by_the_remote_agent(inventory: Inventory, tmp_path: Path) -> None:
    """They are in their node's unit and have the run's environment, whatever is in it."""
    command = 'echo "$(hostname) $(cut -d: -f3 /proc/self/cgroup | grep -o gpuctl.* | head -1)'
    command += (
        ' $(printf %s "$ODD" | sha256sum)"; test $OMPI_COMM_WORLD_RANK != 3 || { sleep 1; exit 7; }'
    )
    plan = mpi_job(inventory, command, env={"ODD": ODD})
    result, events = execute(inventory, plan, tmp_path)
    digest = hashlib.sha256(ODD.encode()).hexdigest()
    lines = output(events, 0).split("\n")
    assert sorted(line for line in lines if digest in line) == [
        f"node{rank} gpuctl-run-{plan.run_id}-{rank}.service {digest}  -" for rank in (0, 0, 1, 1)
    ]
    assert (result.status, result.exit_code) == ("failed", 7)
    assert_nothing_left(inventory)


def test_what_remote_ranks_put_into_sessions_of_their_own_is_reaped(
    inventory: Inventory, tmp_path: Path
) -> None:
    command = "setsid -f bash -c 'trap \"\" TERM; sleep 1235; sleep 1236'; echo runs; sleep 1000"
    plan = mpi_job(inventory, command)

    async def stop() -> RunResult:
        events: list[Event] = []
        computing = asyncio.Event()

        def see(event: Event) -> None:
            events.append(event)
            if output(events, 0).count("runs") == 4:
                computing.set()

        running = asyncio.ensure_future(session.run(plan, inventory, tmp_path, see))
        await asyncio.wait_for(computing.wait(), 60)
        running.cancel()
        return await running

    assert asyncio.run(stop()).status == "stopped"
    assert_nothing_left(inventory)


def test_a_command_on_another_node_ends_when_its_caller_is_killed(
    inventory: Inventory, tmp_path: Path
) -> None:
    script = """
    cd $GPUCTL_RUN_FOLDER/bin
    ./ssh node1 'trap "" HUP; sleep 4242; sleep 4243' &
    until ./ssh node1 pgrep -x sleep -a | grep 4242; do sleep 0.2; done
    kill -9 $!
    for i in $(seq 50); do ./ssh node1 pgrep -x sleep -a | grep 424 || exit 9; sleep 0.2; done
    """
    command = f"if [ $DSTACK_NODE_RANK = 0 ]; then {script} else exec sleep infinity; fi"
    plan = job(inventory, command, startup_order="workers-first", stop_criteria="master-done")
    result, _ = execute(inventory, plan, tmp_path)
    assert result.exit_code == 9, "the command has gone"
    assert_nothing_left(inventory)


SEARCH = """
import os, subprocess, sys
value = sys.stdin.buffer.read()
for folder, folders, files in os.walk("/"):
    folders[:] = [f for f in folders if os.path.join(folder, f) not in ("/proc", "/sys", "/usr")]
    for name in files:
        path = os.path.join(folder, name)
        if os.path.isfile(path) and not os.path.islink(path):
            with open(path, "rb") as file:
                if value in file.read():
                    print(path)
for command in (["ps", "-eo", "args"], ["journalctl", "--no-pager"]):
    if value in subprocess.run(command, capture_output=True).stdout:
        print(command)
"""


def test_a_secret_is_nowhere_but_in_the_job(inventory: Inventory, tmp_path: Path) -> None:
    value = f"geheim-{new_run_id('x')}"
    command = 'printf %s "$TOKEN" | sha256sum; echo "token is $TOKEN"; sleep 8'
    plan = mpi_job(inventory, command, env={"TOKEN": {"secret": "MY_TOKEN"}})
    found: list[str] = []

    async def execute_and_search() -> tuple[RunResult, list[Event]]:
        events: list[Event] = []
        printed = asyncio.Event()

        def see(event: Event) -> None:
            events.append(event)
            if output(events, 0).count("token is") == 4:
                printed.set()

        secrets = {"MY_TOKEN": value}
        running = asyncio.ensure_future(session.run(plan, inventory, tmp_path, see, secrets))
        await asyncio.wait_for(printed.wait(), 60)
        search = f"python3 -c {shlex.quote(SEARCH)}"
        for rank in (0, 1):
            found.append(await asyncio.to_thread(on, inventory, rank, search, value))
        return await running, events

    result, events = asyncio.run(execute_and_search())
    digest = hashlib.sha256(value.encode()).hexdigest()
    text = output(events, 0)
    assert (result.status, result.exit_code) == ("done", 0), text
    assert text.count(digest) == 4, "every rank has the value"
    assert text.count("token is ***") == 4
    assert found == ["", ""], "while the job ran"
    for rank in (0, 1):
        assert on(inventory, rank, f"python3 -c {shlex.quote(SEARCH)}", value) == ""
    for path in tmp_path.rglob("*"):
        assert path.is_dir() or value.encode() not in path.read_bytes()
