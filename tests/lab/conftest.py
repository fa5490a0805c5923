"""Real machines for tests: booted once per module, gone after it."""

import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from threading import Event

import pytest

from config.progress import silent
from lab import leftovers
from lab.images import image
from lab.machines.machine import Machine, MachineSpec
from lab.network.bridge import LabNetwork
from lab.network.slots import Slot
from lab.places import Places
from tests.labs import lab_for

VPC = "10.213.0.0/16"
SUBNET = "10.213.0.0/24"
OTHER_SUBNET = "10.213.1.0/24"


@dataclass
class Booted:
    """A machine that booted, and the way to it: ssh from the host to its public address."""

    machine: Machine
    key: Path
    exits: list[str] = field(default_factory=list)
    ended: Event = field(default_factory=Event)

    def on_exit(self, instance_id: str) -> None:
        self.exits.append(instance_id)
        self.ended.set()

    def ssh(self, command: str, stdin: str = "") -> subprocess.CompletedProcess[str]:
        options = ["StrictHostKeyChecking=no", "UserKnownHostsFile=/dev/null", "LogLevel=ERROR"]
        options += ["ConnectTimeout=2", "IdentitiesOnly=yes"]
        argv = ["ssh", "-i", str(self.key), *(word for o in options for word in ("-o", o))]
        return subprocess.run(
            [*argv, f"root@{self.machine.spec.public_ip}", command],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
        )

    def output(self, command: str) -> str:
        done = self.ssh(command)
        assert done.returncode == 0, f"{command}: {done.stderr}{done.stdout}"
        return done.stdout

    def wait(self) -> None:
        """ssh answers, and cloud-init is done without a complaint."""
        deadline = time.monotonic() + 90
        while (done := self.ssh("cloud-init status --wait")).returncode == 255:
            assert time.monotonic() < deadline, f"no ssh: {done.stderr}{self.machine.console()}"
            time.sleep(0.2)
        assert "status: done" in done.stdout, self.ssh("cat /var/log/cloud-init.log").stdout


Boot = Callable[[str, str], Booted]


@pytest.fixture(scope="session")
def places() -> Places:
    """The places of a lab without a daemon, this worker's own."""
    return lab_for("lab")


@pytest.fixture(scope="module")
def lab_network(places: Places) -> Iterator[LabNetwork]:
    """The lab's network with one VPC and two subnets."""
    leftovers.clear(places)
    network = LabNetwork.claim(places)
    try:
        network.up()
        network.add_vpc(VPC)
        network.add_subnet(SUBNET)
        network.add_subnet(OTHER_SUBNET)
        yield network
    finally:
        leftovers.clear(places)


@pytest.fixture(scope="module")
def key(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("key") / "id_ed25519"
    subprocess.run(["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", path], check=True)
    return path


@pytest.fixture(scope="module")
def boot(lab_network: LabNetwork, key: Path) -> Iterator[Boot]:
    """`boot("stock", "10.213.0.4")`: boots at once, is removed after the module."""
    machines: list[Booted] = []

    def start(flavour: image.Flavour, address: str) -> Booted:
        image.ensure_image(flavour, silent)
        made = spec(flavour, address, key, lab_network.slot)
        booted = Booted(Machine(made, lab_network.places), key)
        machines.append(booted)
        booted.machine.boot(booted.on_exit)
        return booted

    yield start  # type: ignore[misc]
    for booted in machines:
        booted.machine.remove()


def spec(flavour: image.Flavour, address: str, key: Path, slot: Slot) -> MachineSpec:
    """A machine of the subnet that `address` is in; its public address ends alike."""
    *network_part, last = address.split(".")
    user_data = f"""#cloud-config
disable_root: false
ssh_authorized_keys: [{key.with_suffix(".pub").read_text().strip()!r}]
write_files:
- path: /root/.ssh/config
  content: |
    StrictHostKeyChecking no
    LogLevel ERROR
runcmd:
- [sh, -c, "echo user data ran >> /root/ran"]
"""
    return MachineSpec(
        instance_id=f"i-{int(network_part[2]):08x}{int(last):09x}",
        hostname=f"ip-{address.replace('.', '-')}",
        flavour=flavour,
        private_ip=address,
        prefix_length=24,
        gateway=".".join([*network_part, "1"]),
        public_ip=str(slot.public_range[int(network_part[2]) * 256 + int(last)]),
        user_data=user_data.encode(),
        authorized_keys=(),
        instance_type="p4d.24xlarge",
    )
