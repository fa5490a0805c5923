"""Sixty-four nodes that cost nothing: addresses of the loopback behind two sshd processes.

One sshd is the bastion, one listens on every address 127.0.1.1 … 127.0.1.64. Each node has an
address and a connection of its own; what a node itself would do (its kernel, its disk) is the same
machine's, without what a login shell of its user would start (HOME is another). gpuctl finds the
nodes in a state folder, as it finds those of any cluster.
"""

import getpass
import shutil
import socket
import subprocess
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from benchmarks.overheads.site import Site, environment_of
from nodes.dial import end as end_broker
from nodes.inventory import Bastion, Inventory, Node, save
from nodes.keys import ensure_key
from tests.provision.test_record import a_record

NAME = "many"
CONFIG = """\
ListenAddress {address}:{port}
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {folder}/authorized_keys
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 1000
SetEnv HOME={folder}
"""
START_S = 10


@contextmanager
def simulated(count: int) -> Iterator[Site]:
    """A cluster of `count` simulated nodes, of which gpuctl's state says that it is ready."""
    with tempfile.TemporaryDirectory(prefix="gpuctl-") as name:
        home = Path(name)
        folder = home / "gpuctl/aws/clusters" / NAME
        folder.mkdir(mode=0o700, parents=True)
        (folder / "cluster.json").write_text(a_record(NAME).now("ready").model_dump_json())
        (folder / "authorized_keys").write_text(ensure_key(folder / "id_ed25519", NAME) + "\n")
        host_key = ensure_key(folder / "host", "host")
        ports = (_free_port(), _free_port())
        inventory = _inventory(folder, count, ports)
        save(inventory, folder / "inventory.json")
        known = [
            f"[127.0.0.1]:{ports[0]}",
            *(f"[{n.private_ip}]:{n.port}" for n in inventory.nodes),
        ]
        (folder / "known_hosts").write_text("".join(f"{line} {host_key}\n" for line in known))
        servers = [_start_sshd(folder, "127.0.0.1", ports[0])]
        servers.append(_start_sshd(folder, "0.0.0.0", ports[1]))  # noqa: S104
        here = Site(inventory, home, environment_of(home), options=())
        try:
            yield here
        finally:
            here.end_kept()
            end_broker(str(folder))
            for server in servers:
                server.terminate()
                server.wait()


def _inventory(folder: Path, count: int, ports: tuple[int, int]) -> Inventory:
    user = getpass.getuser()
    return Inventory(
        cluster=NAME,
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        user=user,
        bastion=Bastion(instance_id="i-b", address="127.0.0.1", user=user, port=ports[0]),
        nodes=tuple(
            Node(
                rank=rank,
                name=f"node{rank}",
                instance_id=f"i-{rank}",
                private_ip=f"127.0.1.{rank + 1}",
                gpus=8,
                slots=8,
                port=ports[1],
            )
            for rank in range(count)
        ),
        folder=folder,
    )


def _start_sshd(folder: Path, address: str, port: int) -> subprocess.Popen[bytes]:
    program = shutil.which("sshd", path="/usr/sbin:/usr/bin")
    if program is None:
        raise SystemExit("sshd is not installed: apt-get install -y openssh-server")
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    config = folder / f"sshd_config.{port}"
    config.write_text(CONFIG.format(address=address, port=port, folder=folder))
    process = subprocess.Popen([program, "-D", "-f", str(config)], stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + START_S
    while time.monotonic() < deadline:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            time.sleep(0.02)
        else:
            return process
    process.kill()
    raise SystemExit(f"sshd does not listen on port {port}; see its config in {folder}")


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])
