"""`gpuctl up` against the machines' own boot."""

import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path

from benchmarks.fleet import INSTANCE_TYPE
from benchmarks.overheads.row import TIMES, Row, best_of
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.progress import silent
from config.target import Target
from infra.program.interface_layout import interfaces
from lab import leftovers, lifecycle
from lab.amis import flavour
from lab.machines.machine import Machine, MachineSpec
from lab.network.bridge import LabNetwork
from lab.network.slots import Slot
from lab.places import DEFAULT, Places
from nodes.keys import ensure_key
from provision import up
from provision.preflight.preflight import resolve
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.software.gpu_hardware import hardware
from provision.state.store import ClusterStore

BOOTED = 8
MORE_S = 5.0
"""What `up` may take beyond the machines' own boot."""

VPC, SUBNET = "10.213.0.0/16", "10.213.0.0/24"
BOOT_LIMIT_S = 600
LAB = Places(DEFAULT)


def up_rows() -> Iterator[Row]:
    """Measure `up` from the confirmed plan to 8 nodes that are ready: `up-8`.

    The peer is the boot of the same machines (the nodes and the bastion, with their user data), all
    at once, to `cloud-init status: done` of each. Five seconds more are wanted, as a ratio here.
    """
    cluster = _cluster(BOOTED, "bench")

    def ours() -> float:
        with booted() as target:
            planned = up.plan(cluster, target, silent)
            started = time.perf_counter()
            up.up(planned, target, silent)
            return time.perf_counter() - started

    with tempfile.TemporaryDirectory() as folder:
        key = Path(folder, "key")
        with booted() as target:
            specs = _machines(resolve(cluster, ClusterStore(target)), ensure_key(key, "bench"))
        mine, boot = best_of(TIMES, ours, lambda: boot_alone(specs, key))
    wanted = round((boot + MORE_S) / boot, 2)
    yield Row(f"up-{BOOTED}", mine, boot, "the machines' own boot and cloud-init", wanted)


@contextmanager
def booted() -> Iterator[Target]:
    """The lab with nothing in it and with machines; it is stopped at the end."""
    places = Places(DEFAULT)
    if lifecycle.status(places).up:
        raise SystemExit("a lab is running, and would be stopped: end it with `gpuctl lab stop`")
    lifecycle.start(places, silent)
    try:
        yield lifecycle.target(places, "us-east-1")
    finally:
        lifecycle.stop(places, silent)


def boot_alone(specs: list[MachineSpec], key: Path) -> float:
    """Boot the machines at once in the lab's network; the seconds until cloud-init is done."""
    network = LabNetwork.claim(LAB)
    machines = [Machine(spec, LAB) for spec in specs]
    try:
        network.up()
        network.add_vpc(VPC)
        network.add_subnet(SUBNET)
        started = time.perf_counter()
        with ThreadPoolExecutor(len(machines)) as pool:
            list(pool.map(lambda machine: _boot(machine, key), machines))
        return time.perf_counter() - started
    finally:
        for machine in machines:
            machine.remove()
        leftovers.clear(LAB)


def _boot(machine: Machine, key: Path) -> None:
    machine.boot(lambda _: None)
    user = "root" if machine.spec.flavour != "stock" else "gpuctl"
    options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
    options += ["ConnectTimeout=2", "IdentitiesOnly=yes", "BatchMode=yes"]
    where = [word for option in options for word in ("-o", option)]
    login = f"{user}@{machine.spec.public_ip}"
    ask = ["ssh", "-i", str(key), *where, login, "cloud-init status --wait"]
    end = time.monotonic() + BOOT_LIMIT_S
    while (done := subprocess.run(ask, capture_output=True, text=True, check=False)).returncode:
        if time.monotonic() > end or done.returncode != 255:
            raise SystemExit(f"{login}: {done.stdout}{done.stderr}{machine.console()}")
        time.sleep(0.2)


def _machines(resolved: Resolved, key: str) -> list[MachineSpec]:
    """The bastion and the nodes, with their user data and with an address each."""
    kind = resolved.instance_type
    layout = interfaces(kind, resolved.cluster.network.efa, resolved.cluster.network.interfaces)
    node = node_user_data(resolved.cluster, hardware(kind, layout), key)
    public_range = Slot(0).public_range  # the default lab's
    entry = bastion_user_data(resolved.cluster, key)
    users = [(False, entry, resolved.bastion_image.id, resolved.bastion_type)]
    users += [(True, node, resolved.image.id, kind.name)] * resolved.cluster.nodes
    return [
        MachineSpec(
            instance_id=f"i-{number:017x}",
            hostname=f"ip-10-213-0-{number}",
            flavour=flavour(image, resolved.region) or "stock",
            private_ip=f"10.213.0.{number}",
            prefix_length=24,
            gateway="10.213.0.1",
            public_ip=str(public_range[number]),
            user_data=data.encode(),
            authorized_keys=(),
            instance_type=name,
            efa_interfaces=sum(interface.type != "interface" for interface in layout)
            if is_node
            else 0,
            local_disks=kind.local_disks if is_node else 0,
        )
        for number, (is_node, data, image, name) in enumerate(users, start=4)
    ]


def _cluster(nodes: int, name: str) -> Cluster:
    return Cluster.model_validate({"name": name, "nodes": nodes, "instance_type": INSTANCE_TYPE})
