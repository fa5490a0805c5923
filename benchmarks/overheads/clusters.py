"""`gpuctl plan` against a bare Pulumi program, and `gpuctl up` against the machines' own boot."""

import itertools
import subprocess
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

from benchmarks import bare
from benchmarks.fleet import INSTANCE_TYPE, booted, unbooted
from benchmarks.overheads.row import TIMES, Row, best_of
from config.cluster.cluster_file import Cluster
from config.cluster.resolved import Resolved
from config.progress import silent
from infra.program.interface_layout import interfaces
from infra.pulumi_engine.installation import find_engine
from lab import leftovers
from lab.amis import flavour
from lab.machines.machine import Machine, MachineSpec
from lab.network.bridge import LabNetwork
from lab.network.slots import Slot
from lab.places import DEFAULT, Places
from nodes.keys import ensure_key
from provision import up
from provision.aws import clients
from provision.preflight.preflight import resolve
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.software.gpu_hardware import hardware

PLANNED = {2: 1.5, 8: 1.5, 64: 1.2}
"""Sizes of the clusters that are planned, and the ratios that are wanted."""

BOOTED = 8
MORE_S = 5.0
"""What `up` may take beyond the machines' own boot."""

VPC, SUBNET = "10.213.0.0/16", "10.213.0.0/24"
BOOT_LIMIT_S = 600
LAB = Places(DEFAULT)


def plan_rows() -> Iterator[Row]:
    """Measure `plan` of a new cluster of each size: `plan-2`, `plan-8`, `plan-64`.

    Both act on the lab's API in a region where nothing runs, by the same engine and provider, with
    Python's modules imported. The bare program's stack exists before the clock starts; gpuctl asks
    AWS about the cluster, and makes its stack.
    """
    engine = find_engine(silent)
    numbers = itertools.count()
    with unbooted() as target, tempfile.TemporaryDirectory() as folder:

        def ours(nodes: int) -> float:
            cluster = _cluster(nodes, f"plan-{next(numbers)}")
            clients.forget_clients()  # a command makes them once
            started = time.perf_counter()
            up.plan(cluster, target, silent)
            return time.perf_counter() - started

        def theirs(nodes: int) -> float:
            resolved = resolve(_cluster(nodes, "bare"), target)
            state = Path(folder, str(next(numbers)))
            state.mkdir()
            stack = bare.stack(resolved, target, engine, state)
            started = time.perf_counter()
            stack.preview()
            return time.perf_counter() - started

        best_of(1, partial(ours, 1), partial(theirs, 1))  # imports, and the lab's tables
        for nodes, wanted in PLANNED.items():
            mine, bare_s = best_of(TIMES, partial(ours, nodes), partial(theirs, nodes))
            yield Row(f"plan-{nodes}", mine, bare_s, "a bare Pulumi program, same plan", wanted)


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
            specs = _machines(resolve(cluster, target), ensure_key(key, "bench"))
        mine, boot = best_of(TIMES, ours, lambda: boot_alone(specs, key))
    wanted = round((boot + MORE_S) / boot, 2)
    yield Row(f"up-{BOOTED}", mine, boot, "the machines' own boot and cloud-init", wanted)


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
            efa_interfaces=sum(one.type != "interface" for one in layout) if is_node else 0,
            local_disks=kind.local_disks if is_node else 0,
        )
        for number, (is_node, data, image, name) in enumerate(users, start=4)
    ]


def _cluster(nodes: int, name: str) -> Cluster:
    return Cluster.model_validate({"name": name, "nodes": nodes, "instance_type": INSTANCE_TYPE})
