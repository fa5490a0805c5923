"""Two machines that really boot, and runs on them."""

import asyncio
import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from config.errors import NodeError
from config.progress import silent
from config.run.run_file import Task
from engine.contract.event import Event
from engine.contract.plan import LaunchPlan
from engine.contract.worker_events import Output
from engine.plan.launch_plan import launch_plan, new_run_id
from engine.record.result import RunResult
from engine.session import session
from lab.places import Places
from nodes import dial
from nodes.inventory import Bastion, Inventory, Node, save
from nodes.keys import ensure_key, generate_pair
from nodes.ssh import connect
from tests.evidence import note
from tests.labs import lab_for

VPC, SUBNET = "10.213.0.0/16", "10.213.1.0/24"
IPS = ("10.213.1.11", "10.213.1.12")
MPI_JOB = """
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


@contextmanager
def two_machines(folder: Path) -> Iterator[Inventory]:
    """Two machines of the lab that answer, and their inventory; they are gone afterwards."""
    from lab import leftovers
    from lab.images import image
    from lab.machines.machine import Machine, MachineSpec
    from lab.network.bridge import LabNetwork

    places = lab_for("engine")
    leftovers.clear(places)
    network = LabNetwork.claim(places)
    public = str(network.slot.public_range[11])

    client = ensure_key(folder / "id_ed25519", "client")
    cluster, host = generate_pair("cluster"), generate_pair("host")
    there = saved_inventory(folder, public, host[1])
    machines = [
        Machine(
            MachineSpec(
                instance_id=node.instance_id,
                hostname=node.name,
                flavour="dlami",
                private_ip=node.private_ip,
                prefix_length=24,
                gateway="10.213.1.1",
                public_ip=public if node.rank == 0 else None,
                user_data=user_data(client, cluster, host),
                authorized_keys=(),
                instance_type="p4d.24xlarge",
            ),
            places,
        )
        for node in there.nodes
    ]
    image.ensure_image("dlami", silent)
    try:
        network.up()
        network.add_vpc(VPC)
        network.add_subnet(SUBNET)
        for machine in machines:
            machine.boot(lambda _: None)
        with _evidence_kept(there, places):
            asyncio.run(booted(there))
        yield there
    finally:
        dial.end(str(folder))
        for machine in machines:
            machine.remove()
        network.down()
        leftovers.clear(places)


@contextmanager
def _evidence_kept(there: Inventory, places: Places) -> Iterator[None]:
    """Note what machines that do not boot show: they go before evidence is collected."""
    from lab.machines.machine_evidence import evidence

    try:
        yield
    except NodeError:
        limit = Path("/proc/sys/fs/inotify/max_user_instances").read_text()
        note(f"the host's limit of inotify instances, without which nothing boots: {limit}")
        for node in there.nodes:
            for source, text in evidence(places, node.instance_id).items():
                note(f"{node.name}, {source}:\n{text[-16000:]}")
        raise


def saved_inventory(folder: Path, public: str, host_key: str) -> Inventory:
    """Write the inventory of the two, whose head is the bastion as well, and their known hosts."""
    known = "".join(f"{address} {host_key}\n" for address in (*IPS, public))
    (folder / "known_hosts").write_text(known)
    there = Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        bastion=Bastion(instance_id="i-0", address=public, user="root"),
        nodes=tuple(
            Node(rank=i, name=f"node{i}", instance_id=f"i-e{i}", private_ip=ip, gpus=2, slots=2)
            for i, ip in enumerate(IPS)
        ),
        folder=folder,
    )
    save(there, folder / "inventory.json")
    return there


async def booted(there: Inventory) -> None:
    """Both nodes answer, and cloud-init is done on them."""
    deadline = time.monotonic() + 300  # on a busy machine a boot takes long
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


def on(there: Inventory, rank: int, command: str, stdin: str | None = None) -> str:
    async def call() -> str:
        async with connect(there) as connections:
            node = there.nodes[rank]
            return (await connections.run(node, command, stdin=stdin, timeout=60)).stdout

    return asyncio.run(call())


def units(there: Inventory, rank: int) -> str:
    return on(there, rank, "systemctl list-units --all --no-legend 'gpuctl-run-*'").strip()


def assert_nothing_left(there: Inventory) -> None:
    """Nothing of a run is left on any node, as soon as systemd has noticed that its units ended."""
    for node in there.nodes:
        deadline = time.monotonic() + 10
        while left := _left(there, node.rank):
            assert time.monotonic() < deadline, f"{node.name}: {left}"
            time.sleep(0.2)


def _left(there: Inventory, rank: int) -> str:
    return units(there, rank) + on(there, rank, "pgrep -af 'sleep|mpirun|orted|all_reduce|agent'")


def job(there: Inventory, command: str, **fields: Any) -> LaunchPlan:
    values = {"type": "task", "name": "job", "nodes": 2, "commands": (command,), **fields}
    return launch_plan(Task.model_validate(values), there, new_run_id("job"))


def execute(there: Inventory, plan: LaunchPlan, runs: Path) -> tuple[RunResult, list[Event]]:
    events: list[Event] = []
    return asyncio.run(session.run(plan, there, runs, events.append)), events


def output(events: list[Event], rank: int) -> str:
    return "\n".join(e.text for e in events if isinstance(e, Output) and e.rank == rank)


def wait_for(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "not within time"
        time.sleep(0.3)
