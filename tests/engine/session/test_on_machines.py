"""Runs on two machines that really boot: units, ssh between nodes, what is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
from pathlib import Path

import pytest

from config.errors import RunError
from engine.agent.journal.run_folders import USED
from engine.contract.codec import to_json
from engine.contract.event import Event
from engine.contract.head_events import RunStarted, SupervisorResumed
from engine.contract.worker_events import NodeStarted, Output
from engine.record.history import History
from engine.record.result import RunResult
from engine.session import session
from nodes.inventory import Inventory
from tests.engine.machines import (
    IPS,
    MPI_JOB,
    assert_nothing_left,
    execute,
    job,
    on,
    output,
    wait_for,
)

pytestmark = pytest.mark.lab


def test_seed_job(inventory: Inventory, tmp_path: Path) -> None:
    plan = job(inventory, MPI_JOB, startup_order="workers-first", stop_criteria="master-done")
    result, events = execute(inventory, plan, tmp_path)
    assert (result.status, result.exit_code) == ("done", 0), output(events, 0)
    text = output(events, 0)
    assert "node0" in text
    assert "node1" in text
    with History(tmp_path) as history:
        (table,) = history.tables(result.run_id)
        assert history.find("job").status == "done"
    assert table.facts.collective == "all_reduce"
    assert [row.size for row in table.rows] == [8 << i for i in range(14)]
    assert {half and half.wrong for row in table.rows for half in (row.out_of_place,)} == {0}
    assert_nothing_left(inventory)
    folder = f"/var/lib/gpuctl/runs/{result.run_id}"
    *files, mark = on(inventory, 0, f"ls {folder}").split()
    assert mark.startswith(USED)
    assert files == [
        "agent.pyz",
        "hostfile",
        "journal.jsonl",
        "metrics.jsonl",
        "rank-0.log",
        "read",
    ]
    assert on(inventory, 1, f"cat {folder}/hostfile") == f"{IPS[0]} slots=2\n{IPS[1]} slots=2\n"


def test_ssh_to_a_node_is_kept_for_the_next_run(inventory: Inventory, tmp_path: Path) -> None:
    def kept() -> str:
        result, _ = execute(inventory, job(inventory, "true"), tmp_path)
        assert result.status == "done"
        return on(inventory, 0, f"pgrep -f '[s]sh .*-fNM .*ssh-{IPS[1]}'")

    first = kept()
    assert first
    assert kept() == first
    on(inventory, 0, f"kill -STOP {first}")
    assert kept().split() != first.split(), "one that does not answer is no obstacle"
    on(inventory, 0, f"kill -KILL {first}; true")


def test_failing_rank(inventory: Inventory, tmp_path: Path) -> None:
    command = "echo on $HOSTNAME; if [ $DSTACK_NODE_RANK = 1 ]; then exit 7; fi; sleep 1000"
    result, _ = execute(inventory, job(inventory, command), tmp_path)
    assert (result.status, result.exit_code) == ("failed", 7)
    assert (result.first_failed_node, result.last_lines) == ("node1", ("on node1",))
    assert_nothing_left(inventory)


def test_what_leaves_its_session_is_reaped(inventory: Inventory, tmp_path: Path) -> None:
    command = "setsid sleep 1234 & setsid -f bash -c 'trap \"\" TERM; sleep 1235; sleep 1236'"
    result, _ = execute(inventory, job(inventory, command), tmp_path)
    assert result.status == "done"
    assert_nothing_left(inventory)


def test_second_run_is_refused(inventory: Inventory, tmp_path: Path) -> None:
    first, second = job(inventory, "sleep 1000"), job(inventory, "true")

    async def both() -> RunResult:
        running = asyncio.Event()
        one = asyncio.ensure_future(
            session.run(first, inventory, tmp_path, lambda _: running.set())
        )
        await running.wait()
        with pytest.raises(RunError) as refused:
            await session.run(second, inventory, tmp_path, lambda _: None)
        assert refused.value.message == f"cluster demo is busy with run {first.run_id}"
        one.cancel()  # Ctrl-C
        return await one

    result = asyncio.run(both())
    assert (result.status, result.exit_code) == ("stopped", 130)
    with History(tmp_path) as history:
        assert [run.run_id for run in history.runs()] == [first.run_id]
    assert_nothing_left(inventory)


def test_a_supervisor_that_is_killed_or_restarted_is_taken_up(
    inventory: Inventory, tmp_path: Path
) -> None:
    """No line is lost or doubled, and the client that follows notices nothing."""
    plan = job(inventory, "for i in $(seq 120); do echo tick $i; sleep 0.1; done")
    unit = f"gpuctl-run-{plan.run_id}.service"
    hits = {
        "tick 10": f"systemctl kill -s KILL {unit}",
        "tick 60": f"systemctl restart {unit}",
    }
    hitting: list[threading.Thread] = []
    seen: list[Event] = []

    def hit(event: Event) -> None:
        seen.append(event)
        if isinstance(event, Output) and event.rank == 1 and event.text in hits:
            hitting.append(threading.Thread(target=on, args=(inventory, 0, hits[event.text])))
            hitting[-1].start()

    result = asyncio.run(session.run(plan, inventory, tmp_path, hit))
    for thread in hitting:
        thread.join()
    assert (result.status, result.reason) == ("done", "all nodes are done")
    assert len([e for e in seen if isinstance(e, SupervisorResumed)]) == len(hits)
    for rank in (0, 1):
        assert output(seen, rank).split("\n") == [f"tick {i}" for i in range(1, 121)]
    assert len([e for e in seen if isinstance(e, NodeStarted)]) == 2
    assert on(inventory, 0, "ls /run/gpuctl/*.json; true") == ""
    assert_nothing_left(inventory)


def test_supervisors_after_a_killed_one_have_the_secrets_which_are_in_no_file(
    inventory: Inventory, tmp_path: Path
) -> None:
    """systemd keeps them from one supervisor to the next, also over `systemctl restart`."""
    command = (
        "test -e /tmp/again && echo ${#TOKEN} characters && exit;"
        " touch /tmp/again; echo ready; sleep 15; exit 1"
    )
    retry = {"attempts": 2, "backoff": "1s"}
    plan = job(inventory, command, env={"TOKEN": {"secret": "MY_TOKEN"}}, retry=retry)
    unit = f"gpuctl-run-{plan.run_id}.service"
    hit = (
        f"sleep 1; systemctl kill -s KILL {unit}; sleep 4; systemctl restart {unit}; sleep 2;"
        f" ls /run/gpuctl/{plan.run_id}.secrets 2>&1; grep -rl geheim-0123456789 /run /tmp /var/lib"
    )
    found: list[str] = []
    hitting: list[threading.Thread] = []
    seen: list[Event] = []

    def see(event: Event) -> None:
        seen.append(event)
        if isinstance(event, Output) and event.text == "ready" and not hitting:
            search = threading.Thread(target=lambda: found.append(on(inventory, 0, f"{hit}; true")))
            hitting.append(search)
            search.start()

    secrets = {"MY_TOKEN": "geheim-0123456789"}
    result = asyncio.run(session.run(plan, inventory, tmp_path, see, secrets))
    for thread in hitting:
        thread.join()
    assert (result.status, result.reason) == ("done", "all nodes are done")
    assert len([event for event in seen if isinstance(event, SupervisorResumed)]) == 2
    assert output(seen, 0).split("\n")[-1] == "17 characters"
    assert found == [
        f"ls: cannot access '/run/gpuctl/{plan.run_id}.secrets': No such file or directory\n"
    ]
    for rank in (0, 1):
        on(inventory, rank, "rm /tmp/again")
    assert_nothing_left(inventory)


def test_client_killed(inventory: Inventory, tmp_path: Path) -> None:
    """The run goes on; another client sees all of it, and can stop it."""
    plan = job(inventory, "for i in $(seq 1000); do echo tick $i; sleep 0.2; done")
    (tmp_path / "plan.json").write_text(json.dumps(to_json(plan)))
    program = """
        import asyncio, json, sys
        from pathlib import Path
        from engine.session import session
        from engine.contract.codec import from_json
        from engine.contract.plan import LaunchPlan
        from nodes.inventory import Inventory
        plan = from_json(LaunchPlan, json.loads(Path(sys.argv[1]).read_text()))
        there = Inventory.model_validate_json(Path(sys.argv[2]).read_text())
        asyncio.run(session.run(plan, there, Path(sys.argv[3]), lambda e: print(e, flush=True)))
    """
    client = subprocess.Popen(
        [
            *(sys.executable, "-c", textwrap.dedent(program), tmp_path / "plan.json"),
            *(inventory.folder / "inventory.json", tmp_path),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[3],
    )
    with client:
        assert client.stdout is not None
        for line in client.stdout:
            if b"tick 3" in line:
                break
        os.kill(client.pid, signal.SIGKILL)
    seen: list[Event] = []

    async def attach() -> RunResult:
        enough = asyncio.Event()

        def see(event: Event) -> None:
            seen.append(event)
            if isinstance(event, Output) and "tick 12" in event.text.split("\n"):
                enough.set()

        following = asyncio.ensure_future(session.follow(plan.run_id, inventory, tmp_path, see))
        await enough.wait()
        following.cancel()
        return await session.stop(plan.run_id, inventory, tmp_path)

    result = asyncio.run(attach())
    assert result.status == "stopped"
    assert [e for e in seen if isinstance(e, RunStarted)] != []
    assert output(seen, 0).startswith("tick 1\ntick 2\ntick 3\ntick 4\n")
    assert_nothing_left(inventory)


def test_stop_while_ranks_run_on_both_nodes(inventory: Inventory, tmp_path: Path) -> None:
    plan = job(inventory, MPI_JOB.replace("-e 64K", "-e 4M -n 2000"), stop_criteria="master-done")

    async def stop() -> RunResult:
        computing = asyncio.Event()

        def see(event: Event) -> None:
            lines = event.text.split("\n") if isinstance(event, Output) else []
            if any(line.split()[1:2] == ["2"] for line in lines):  # the first row
                computing.set()

        running = asyncio.ensure_future(session.run(plan, inventory, tmp_path, see))
        await asyncio.wait_for(computing.wait(), 240)
        running.cancel()
        return await running

    assert asyncio.run(stop()).status == "stopped"
    wait_for(lambda: on(inventory, 1, "pgrep -f 'orted|all_reduce'") == "", 60)
    assert_nothing_left(inventory)


def test_lost_connection(inventory: Inventory, tmp_path: Path) -> None:
    """The client goes on behind the last line that it has."""
    plan = job(inventory, "for i in $(seq 40); do echo tick $i; sleep 0.1; done")
    cuts: list[threading.Thread] = []

    def cut(event: Event) -> None:
        ticks = event.text.split("\n") if isinstance(event, Output) and event.rank == 0 else []
        if "tick 8" in ticks or "tick 24" in ticks:
            # The bracket keeps pgrep from finding the shell that asks.
            command = "kill -9 $(pgrep -f 'gpuctl-agent [f]ollow')"
            cuts.append(threading.Thread(target=on, args=(inventory, 0, command)))
            cuts[-1].start()
        seen.append(event)

    seen: list[Event] = []
    result = asyncio.run(session.run(plan, inventory, tmp_path, cut))
    assert result.status == "done"
    assert len(cuts) == 2
    assert output(seen, 0).split("\n") == [f"tick {i}" for i in range(1, 41)]
    journal = on(inventory, 0, f"cat /var/lib/gpuctl/runs/{plan.run_id}/journal.jsonl")
    assert (tmp_path / plan.run_id / "journal.jsonl").read_text() == journal
