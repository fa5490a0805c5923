"""What every node gets, so that it reaches the others."""

import os
import subprocess
from pathlib import Path

import pytest

from nodes.inventory import Inventory, Node
from provision.setup.bootstrap import share_of
from provision.setup.nodes_key import NodesKey
from provision.state.host_keys import BootingMachine, KnownHosts

PRIVATE = "-----BEGIN OPENSSH PRIVATE KEY-----\nit's %s\n-----END OPENSSH PRIVATE KEY-----\n"
HOSTS = """\
# gpuctl: nodes
10.0.0.4 node0 ip-10-0-0-4
10.0.0.5 node1 ip-10-0-0-5
# gpuctl: end
"""


@pytest.fixture
def share(tmp_path: Path) -> str:
    """The script for a cluster of two nodes, of which one host key is known."""
    nodes = tuple(
        Node(
            rank=rank,
            name=f"node{rank}",
            instance_id=f"i-{rank}",
            private_ip=f"10.0.0.{rank + 4}",
            gpus=8,
            slots=8,
        )
        for rank in range(2)
    )
    inventory = Inventory(
        cluster="demo",
        region="us-east-1",
        zone="us-east-1a",
        instance_type="p4d.24xlarge",
        bastion=None,
        nodes=nodes,
        folder=tmp_path,
    )
    known = KnownHosts(tmp_path / "known_hosts")
    known.pin(BootingMachine("node0", "i-0", "10.0.0.4"), "ssh-ed25519 AAAA")
    return share_of(inventory, known, NodesKey(PRIVATE, "public nodes", ("granted key",)))


class Computer:
    """A folder with what the script reads and writes."""

    def __init__(self, root: Path) -> None:
        self.root = root
        for folder in ("etc", "root/.ssh", "bin"):
            (root / folder).mkdir(parents=True)
        (root / "etc/hosts").write_text("127.0.0.1 localhost\n")
        (root / "etc/host.conf").write_text("multi on\n")
        (root / "root/.ssh/authorized_keys").write_text("the client\n")
        mpirun = root / "bin/mpirun"
        mpirun.write_text("#!/bin/sh\ncat\necho 'mpirun (Open MPI) 4.1.4'\necho more\n")
        mpirun.chmod(0o755)

    def run(self, script: str) -> "subprocess.CompletedProcess[str]":
        for folder in ("/etc/", "/root/"):
            script = script.replace(f" {folder}", f" {self.root}{folder}")
        path = f"{self.root}/bin:{os.environ['PATH']}"
        return subprocess.run(
            ["bash", "-s"],
            input=script,
            env={"PATH": path, "HOME": f"{self.root}/root"},
            capture_output=True,
            text=True,
            check=False,
        )

    def files(self) -> dict[str, str]:
        """The mode and the text of each file, by path."""
        found = (path for path in self.root.rglob("*") if path.is_file())
        return {
            str(path.relative_to(self.root)): f"{path.stat().st_mode & 0o777:o} {path.read_text()}"
            for path in found
        }


@pytest.fixture
def computer(tmp_path: Path) -> Computer:
    return Computer(tmp_path / "computer")


def test_nodes_know_each_other_by_gpuctls_names_and_by_aws_own(
    computer: Computer, share: str
) -> None:
    for _ in range(2):  # a second `up` changes nothing
        done = computer.run(f"{share}echo end\n")
        assert (done.returncode, done.stdout) == (0, "mpirun (Open MPI) 4.1.4\nend\n"), done.stderr
    files = computer.files()
    config = files.pop("etc/ssh/ssh_config.d/50-gpuctl.conf")
    assert config.startswith("644 Host node0 10.0.0.4 node1 10.0.0.5\n  IdentityFile ~/.ssh/id_")
    del files["bin/mpirun"]
    assert files == {
        "etc/hosts": f"644 {HOSTS}127.0.0.1 localhost\n",
        "etc/host.conf": "644 multi off\n",
        "etc/ssh/ssh_known_hosts": "644 node0,10.0.0.4 ssh-ed25519 AAAA\n",
        "root/.ssh/id_ed25519": f"600 {PRIVATE}",
        "root/.ssh/authorized_keys": "644 the client\npublic nodes\ngranted key\n",
    }


def test_a_script_of_which_a_part_arrives_does_nothing(computer: Computer, share: str) -> None:
    before = computer.files()
    for end in (share.index("touch"), share.index("}\nshare"), share.index("share <")):
        computer.run(share[:end])
        assert computer.files() == before


def test_a_file_that_cannot_be_written_is_named(computer: Computer, share: str) -> None:
    (computer.root / "etc/ssh/ssh_known_hosts").mkdir(parents=True)
    (computer.root / "etc/ssh/ssh_known_hosts.gpuctl").mkdir()
    before = computer.files()["etc/hosts"]
    done = computer.run(share)
    known = f"{computer.root}/etc/ssh/ssh_known_hosts"
    assert (done.returncode, done.stderr.splitlines()[-1]) == (
        1,
        f"{known} cannot be written: see whether its disk is full or read-only",
    )
    assert computer.files()["etc/hosts"] == before


def test_a_node_without_mpirun_is_refused(computer: Computer, share: str) -> None:
    done = computer.run(share.replace("command -v mpirun", "command -v mpirun.none"))
    assert (done.returncode, done.stderr) == (1, "mpirun is not on the PATH of ssh\n")
