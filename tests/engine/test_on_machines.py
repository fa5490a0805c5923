"""Runs on two machines that really boot: units, ssh between nodes, what is left behind."""

import asyncio
import json
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from config.errors import NodeError, RunError
from config.progress import silent
from config.run import Run
from engine import session
from engine.events import Event, NodeStarted, Output, RunStarted
from engine.history import History
from engine.plan import LaunchPlan, launch_plan, new_run_id
from engine.result import RunResult
from nodes.inventory import Bastion, Inventory, Node, save
from nodes.keys import ensure_key, generate_pair
from nodes.ssh import connect

pytestmark = pytest.mark.lab

VPC, SUBNET = "10.213.0.0/16", "10.213.1.0/24"
IPS = ("10.213.1.11", "10.213.1.12")
PUBLIC = "198.18.0.11"

SEED = """
if [ ${DSTACK_NODE_RANK} -eq 0 ]; then
  cd /root/nccl-tests/build
  : > hostfile
  for ip in ${DSTACK_NODES_IPS}; do
    echo "${ip} slots=${DSTACK_GPUS_PER_NODE}" >> hostfile
  done
  MPIRUN='mpirun --allow-run-as-root --hostfile hostfile'
  ${MPIRUN} \\
    -n ${DSTACK_GPUS_NUM} -N ${DSTACK_GPUS_PER_NODE} \\
    --mca btl_tcp_if_exclude lo,docker0 \\
    --bind-to none \\
    ./all_reduce_perf -b 8 -e 64K -f 2 -g 1
else
  sleep infinity
fi
"""


def user_data(client: str, cluster: tuple[str, str], host: tuple[str, str]) -> bytes:
    """Root enters by the client's key and by the cluster's own; the host key is known."""
    files = {
        "/root/.ssh/id_ed25519": (cluster[0], "0600"),
        "/root/.ssh/config": ("Host *\n  StrictHostKeyChecking no\n  LogLevel ERROR\n", "0600"),
    }
    config = {
        "disable_root": False,
        "users": [{"name": "root", "ssh_authorized_keys": [client, cluster[1]]}],
        "ssh_keys": {"ed25519_private": host[0], "ed25519_public": host[1]},
        "write_files": [
            {"path": path, "content": text, "permissions": mode}
            for path, (text, mode) in files.items()
        ],
    }
    return b"#cloud-config\n" + json.dumps(config).encode()


@pytest.fixture(scope="module")
def inventory(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Inventory]:
    from lab import image, leftovers, network
    from lab.machine import Machine, MachineSpec

    folder = tmp_path_factory.mktemp("cluster")
    client = ensure_key(folder / "id_ed25519", "client")
    cluster, host = generate_pair("cluster"), generate_pair("host")
    known = "".join(f"{address} {host[1]}\n" for address in (*IPS, PUBLIC))
    (folder / "known_hosts").write_text(known)
    there = Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        bastion=Bastion(instance_id="i-0", address=PUBLIC, user="root"),
        nodes=tuple(
            Node(rank=i, name=f"node{i}", instance_id=f"i-e{i}", private_ip=ip, gpus=2, slots=2)
            for i, ip in enumerate(IPS)
        ),
        folder=folder,
    )
    save(there, folder / "inventory.json")
    machines = [
        Machine(
            MachineSpec(
                instance_id=node.instance_id,
                hostname=node.name,
                flavour="dlami",
                private_ip=node.private_ip,
                prefix_length=24,
                gateway="10.213.1.1",
                public_ip=PUBLIC if node.rank == 0 else None,
                user_data=user_data(client, cluster, host),
                authorized_keys=(),
                instance_type="p4d.24xlarge",
            )
        )
        for node in there.nodes
    ]
    assert leftovers.found() == (), "a lab is on this machine: `gpuctl lab stop` first"
    image.ensure_image("dlami", silent)
    try:
        network.up()
        network.add_vpc(VPC)
        network.add_subnet(SUBNET)
        for machine in machines:
            machine.boot(lambda _: None)
        asyncio.run(booted(there))
        yield there
    finally:
        for machine in machines:
            machine.remove()
        network.down()
        leftovers.clear()


async def booted(there: Inventory) -> None:
    """Both nodes answer, and cloud-init is done on them."""
    deadline = time.monotonic() + 90
    while True:
        try:
            async with connect(there) as connections:
                for node in there.nodes:
                    done = await connections.run(node, "cloud-init status --wait", timeout=60)
                    assert "done" in done.stdout, done
        except NodeError:
            if time.monotonic() > deadline:
                raise
            await asyncio.sleep(0.5)
        else:
            return


def on(there: Inventory, rank: int, command: str) -> str:
    async def call() -> str:
        async with connect(there) as connections:
            return (await connections.run(there.nodes[rank], command, timeout=30)).stdout

    return asyncio.run(call())


def units(there: Inventory, rank: int) -> str:
    return on(there, rank, "systemctl list-units --all --no-legend 'gpuctl-run-*'").strip()


def assert_nothing_left(there: Inventory) -> None:
    for node in there.nodes:
        assert units(there, node.rank) == ""
        assert on(there, node.rank, "pgrep -af 'sleep|mpirun|orted|all_reduce|agent'") == ""


def job(there: Inventory, command: str, **fields: Any) -> LaunchPlan:
    values = {"type": "task", "name": "job", "nodes": 2, "commands": (command,), **fields}
    return launch_plan(Run.model_validate(values), there, new_run_id("job"))


def execute(there: Inventory, plan: LaunchPlan, runs: Path) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    return asyncio.run(session.run(plan, there, runs, events.append)), events


def output(events: list[Event], rank: int) -> str:
    return "\n".join(e.text for e in events if isinstance(e, Output) and e.rank == rank)


def test_seed_job(inventory: Inventory, tmp_path: Path) -> None:
    plan = job(inventory, SEED, startup_order="workers-first", stop_criteria="master-done")
    result, events = execute(inventory, plan, tmp_path)
    assert (result.status, result.exit_code) == ("done", 0), output(events, 0)
    text = output(events, 0)
    assert "node0" in text
    assert "node1" in text
    assert (result.ended - result.started).total_seconds() < 20
    with History(tmp_path) as history:
        rows = history.rows(result.run_id)
        assert history.find("job").status == "done"
    assert [row.size for row in rows] == [8 << i for i in range(14)]
    assert {row.wrong for row in rows} == {0}
    assert_nothing_left(inventory)
    folder = f"/var/lib/gpuctl/runs/{result.run_id}"
    assert on(inventory, 0, f"ls {folder}").split() == [
        "agent.pyz",
        "hostfile",
        "journal.jsonl",
        "rank-0.log",
    ]
    assert on(inventory, 1, f"cat {folder}/hostfile") == f"{IPS[0]} slots=2\n{IPS[1]} slots=2\n"


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


def test_supervisor_killed(inventory: Inventory, tmp_path: Path) -> None:
    plan = job(inventory, "sleep 1000")

    def kill(event: Event) -> None:
        if isinstance(event, NodeStarted) and event.rank == 1:
            command = f"systemctl kill -s KILL gpuctl-run-{plan.run_id}.service"
            thread = threading.Thread(target=on, args=(inventory, 0, command))
            thread.start()

    with pytest.raises(RunError, match="the supervisor on node0 ended without a result"):
        asyncio.run(session.run(plan, inventory, tmp_path, kill))
    wait_for(lambda: units(inventory, 0) == units(inventory, 1) == "", 20)
    assert_nothing_left(inventory)


def test_client_killed(inventory: Inventory, tmp_path: Path) -> None:
    """The run goes on; another client sees all of it, and can stop it."""
    plan = job(inventory, "for i in $(seq 1000); do echo tick $i; sleep 0.2; done")
    (tmp_path / "plan.json").write_text(plan.model_dump_json())
    program = """
        import asyncio, sys
        from pathlib import Path
        from engine import session
        from engine.plan import LaunchPlan
        from nodes.inventory import Inventory
        plan = LaunchPlan.model_validate_json(Path(sys.argv[1]).read_text())
        there = Inventory.model_validate_json(Path(sys.argv[2]).read_text())
        asyncio.run(session.run(plan, there, Path(sys.argv[3]), lambda e: print(e, flush=True)))
    """
    client = subprocess.Popen(
        [
            *(sys.executable, "-c", textwrap.dedent(program), tmp_path / "plan.json"),
            *(inventory.folder / "inventory.json", tmp_path),
        ],
        stdout=subprocess.PIPE,
        cwd=Path(__file__).parents[2],
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
            if isinstance(event, Output) and event.text == "tick 12":
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
    plan = job(inventory, SEED.replace("-e 64K", "-e 4M -n 100000"), stop_criteria="master-done")

    async def stop() -> RunResult:
        computing = asyncio.Event()

        def see(event: Event) -> None:
            if isinstance(event, Output) and event.text.split()[1:2] == ["2"]:  # the first row
                computing.set()

        running = asyncio.ensure_future(session.run(plan, inventory, tmp_path, see))
        await asyncio.wait_for(computing.wait(), 60)
        running.cancel()
        return await running

    assert asyncio.run(stop()).status == "stopped"
    wait_for(lambda: on(inventory, 1, "pgrep -f 'orted|all_reduce'") == "", 5)
    assert_nothing_left(inventory)


def test_lost_connection(inventory: Inventory, tmp_path: Path) -> None:
    """The client goes on behind the last line that it has."""
    plan = job(inventory, "for i in $(seq 40); do echo tick $i; sleep 0.1; done")
    cuts: list[threading.Thread] = []

    def cut(event: Event) -> None:
        if isinstance(event, Output) and event.rank == 0 and event.text in ("tick 8", "tick 24"):
            # The bracket keeps pgrep from finding the shell that asks.
            command = "kill -9 $(pgrep -f 'agent.pyz [f]ollow')"
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


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within time"
        time.sleep(0.3)
