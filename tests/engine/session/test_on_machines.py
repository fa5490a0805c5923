"""Runs on two machines that really boot: units, ssh between nodes, what is left behind."""

import asyncio
import threading
from pathlib import Path

import pytest

from engine.agent.journal.run_folders import USED
from engine.contract.event import Event
from engine.contract.head_events import NodeGone, NodeLost, SupervisorResumed
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


@pytest.mark.parametrize("options", ["-9 -f python", "-f python3", "-9 -x sh", "-x ssh"])
def test_a_job_that_ends_processes_by_name_ends_with_its_own_status(
    options: str, inventory: Inventory, tmp_path: Path
) -> None:
    plan = job(inventory, f"for i in 1 2; do pkill {options}; sleep 0.5; done; echo goes on")
    result, events = execute(inventory, plan, tmp_path)
    assert (result.status, result.exit_code) == ("done", 0), output(events, 0)
    assert [output(events, rank) for rank in (0, 1)] == ["goes on"] * 2
    assert not [event for event in events if isinstance(event, NodeLost)]
    assert_nothing_left(inventory)


def test_words_of_a_login_on_a_node_are_no_event_and_no_reason(
    inventory: Inventory, tmp_path: Path
) -> None:
    noise = "echo -n Welcome\necho why >&2\ntrap 'echo bye' EXIT\nset -u\n"
    for rank in (0, 1):
        on(inventory, rank, "cat > ~/.bashrc", noise)
    try:
        result, events = execute(inventory, job(inventory, "echo runs"), tmp_path)
    finally:
        for rank in (0, 1):
            on(inventory, rank, "rm ~/.bashrc")
    assert result.status == "done"
    assert [output(events, rank) for rank in (0, 1)] == ["runs"] * 2
    gone = [event.reason for event in events if isinstance(event, NodeGone)]
    assert gone == ["its worker ended with 0"] * 2


def test_what_leaves_its_session_is_reaped(inventory: Inventory, tmp_path: Path) -> None:
    command = "setsid sleep 1234 & setsid -f bash -c 'trap \"\" TERM; sleep 1235; sleep 1236'"
    result, _ = execute(inventory, job(inventory, command), tmp_path)
    assert result.status == "done"
    assert_nothing_left(inventory)


def test_a_workers_unit(inventory: Inventory, tmp_path: Path) -> None:
    names = "LimitMEMLOCK,LimitNOFILE,TasksMax,OOMPolicy,CPUWeight"
    command = f'systemctl show -p {names} "gpuctl-run-*-$DSTACK_NODE_RANK.service"'
    _, events = execute(inventory, job(inventory, command), tmp_path)
    for rank in (0, 1):
        assert sorted(output(events, rank).split()) == [
            "CPUWeight=100",
            "LimitMEMLOCK=infinity",
            "LimitNOFILE=65536",
            "OOMPolicy=continue",
            "TasksMax=infinity",
        ]


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
