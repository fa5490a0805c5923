"""Real sshd processes on loopback: a bastion, and nodes that are reached through it."""

import asyncio
import getpass
import os
import pwd
import shutil
import socket
import subprocess
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from config.folders import cache_home
from nodes import dial
from nodes.inventory import Bastion, Inventory, Node
from nodes.keys import ensure_key

UNPACKED = cache_home() / "sshd"
"""Where `scripts/setup tests` has sshd without installing it."""

SSHD = shutil.which("sshd", path=f"{os.environ['PATH']}:/usr/sbin:{UNPACKED}/usr/sbin")

# Without the user's own HOME, what his shell prints as it starts takes no part in an answer.
CONFIG = """\
ListenAddress 127.0.0.1:{port}
HostKey {folder}/host
PidFile none
AuthorizedKeysFile {authorized}
PasswordAuthentication no
KbdInteractiveAuthentication no
UsePAM no
StrictModes no
MaxStartups 100
SetEnv HOME={folder}
"""


@dataclass
class Server:
    """An sshd of ours: its port, its host key and its process."""

    port: int
    host_key: str
    process: subprocess.Popen[bytes]

    def stop(self) -> None:
        self.process.terminate()
        self.process.wait(60)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def sshd(folder: Path) -> tuple[list[str], dict[str, str]]:
    """The command and the environment of an sshd that need not be installed.

    Started by root it wants a user `sshd`: where there is none, it sees one that nobody else sees.
    """
    if SSHD is None:
        pytest.fail("sshd is missing: scripts/setup tests")
    libraries = sorted(str(path) for path in UNPACKED.glob("usr/lib/*-linux-*"))
    environment = os.environ | {"LD_LIBRARY_PATH": ":".join(libraries)} if libraries else os.environ
    if os.geteuid() != 0:
        return [SSHD], dict(environment)
    Path("/run/sshd").mkdir(mode=0o755, exist_ok=True)
    try:
        pwd.getpwnam("sshd")
    except KeyError:
        users = folder / "passwd"
        users.write_text(
            f"{Path('/etc/passwd').read_text()}sshd:x:64999:65534::/run/sshd:/bin/false\n"
        )
        with_user = 'mount --bind "$0" /etc/passwd && exec "$@"'
        return ["unshare", "--mount", "sh", "-c", with_user, str(users), SSHD], dict(environment)
    return [SSHD], dict(environment)


def start_sshd(folder: Path, authorized: Path) -> Server:
    folder.mkdir()
    port = free_port()
    host_key = ensure_key(folder / "host", "test host")
    config = folder / "sshd_config"
    config.write_text(CONFIG.format(port=port, folder=folder, authorized=authorized))
    command, environment = sshd(folder)
    process = subprocess.Popen(
        [*command, "-D", "-E", str(folder / "log"), "-f", str(config)],
        env=environment,
        stderr=subprocess.DEVNULL,
    )
    for _ in range(200):
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            assert process.poll() is None, (folder / "log").read_text()
            asyncio.run(asyncio.sleep(0.02))
        else:
            break
    return Server(port, host_key, process)


@dataclass
class Site:
    """A bastion and two nodes, and the inventory that leads to them."""

    bastion: Server
    nodes: tuple[Server, Server]
    inventory: Inventory


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    folder = tmp_path / "demo"
    authorized = tmp_path / "authorized_keys"
    authorized.write_text(ensure_key(folder / "id_ed25519", "gpuctl demo") + "\n")
    servers = [start_sshd(tmp_path / f"sshd{i}", authorized) for i in range(3)]
    (folder / "known_hosts").write_text(
        "".join(f"[127.0.0.1]:{server.port} {server.host_key}\n" for server in servers)
    )
    user = getpass.getuser()
    inventory = Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        user=user,
        bastion=Bastion(instance_id="i-b", address="127.0.0.1", user=user, port=servers[0].port),
        nodes=tuple(
            Node(
                rank=rank,
                name=f"node{rank}",
                instance_id=f"i-{rank}",
                private_ip="127.0.0.1",
                gpus=8,
                slots=8,
                port=server.port,
            )
            for rank, server in enumerate(servers[1:])
        ),
        folder=folder,
    )
    yield Site(servers[0], (servers[1], servers[2]), inventory)
    dial.end(str(folder))
    for server in servers:
        server.stop()
