"""A cluster of machines that people have: the installed command, from `up` to `down`."""

import json
import os
import shutil
import socket
import subprocess
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from tests.e2e.conftest import COMMAND, ROOT, read_until
from tests.evidence import note
from tests.lab.conftest import Boot, Booted

pytestmark = pytest.mark.lab

_TREE = r"""
cd / && find etc root home opt srv usr/local var tmp -xdev \
  ! -path 'var/log/*' ! -path 'var/lib/systemd/*' ! -path 'tmp/systemd-private-*' \
  ! -path 'var/tmp/systemd-private-*' ! -path 'var/cache/*' ! -path 'var/lib/cloud/*' \
  ! \( -type d -path 'tmp/ompi.*' \) \
  ! -name '__pycache__' ! -name '*.pyc' -printf '%p %y %m %U:%G|%l|' \
  \( -type f -exec sha256sum {} \; -o -printf '\n' \) | sed 's/  .*//' | sort
"""
"""Every file with its mode, owner and content; logs and caches are the system's.

Open MPI's empty folders of a session are its own (`/tmp/ompi.HOST`, left once on 2026-11-29).
"""


_AT_HOME = """\
home=$(getent passwd "$(id -u)" | cut -d: -f6); mount --bind "$0" "$home" && HOME=$home exec "$@"
"""
"""ssh takes the home from /etc/passwd, and not from HOME."""


@dataclass(frozen=True)
class Person:
    """Somebody with ssh to the machines, on a computer without AWS."""

    home: Path
    name: str = "ann"

    def __call__(self, *arguments: str | Path, code: int = 0) -> str:
        """Stdout of the command, which ended with `code`; with stderr if that is not 0."""
        with self.running(*arguments, stderr=subprocess.PIPE) as process:
            stdout, stderr = process.communicate(timeout=300)
        note(f"$ {' '.join(map(str, arguments))}\n{stdout}{stderr}")
        assert process.returncode == code, f"{arguments}: {stdout}{stderr}"
        return stdout if code == 0 else stdout + stderr

    @contextmanager
    def running(
        self, *arguments: str | Path, stderr: int = subprocess.STDOUT
    ) -> Iterator[subprocess.Popen[str]]:
        """The command while it runs, its output readable line by line; killed at the end."""
        names = ("AWS_", "SSH_AUTH_SOCK", "XDG_", "GPUCTL_")
        kept = {name: value for name, value in os.environ.items() if not name.startswith(names)}
        with subprocess.Popen(
            ["unshare", "--mount", "sh", "-c", _AT_HOME, self.home, COMMAND, *arguments],
            env=kept | {"AWS_EC2_METADATA_DISABLED": "true", "LOGNAME": self.name},
            cwd=ROOT,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=stderr,
            text=True,
        ) as process:
            try:
                yield process
            finally:
                process.kill()


@pytest.fixture(scope="module")
def machines(boot: Boot) -> list[Booted]:
    booted = [boot("dlami", f"10.213.0.{number}") for number in (14, 15)]
    for machine in booted:
        machine.wait()
        # As on many a machine: no end of line at the end, and a greeting for every shell.
        machine.output(
            "printf 'ssh-ed25519 %s ann' \"$(head -c 51 /dev/zero | base64)\""
            " >> ~/.ssh/authorized_keys && echo 'echo welcome' >> ~/.bashrc"
        )
        machine.output(
            "apt-get -qq update && apt-get -qq -o Dpkg::Options::=--force-confnew install -y sudo"
        )
    return booted


@pytest.fixture(scope="module")
def person(tmp_path_factory: pytest.TempPathFactory) -> Person:
    home = tmp_path_factory.mktemp("home")
    return Person(home)


@pytest.fixture(scope="module")
def file(machines: list[Booted], key: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    return hosts_file(tmp_path_factory.mktemp("files"), "lab7", machines, key)


def hosts_file(folder: Path, name: str, machines: Sequence[Booted], key: Path) -> Path:
    """Write a cluster file of these machines, which root enters with the key."""
    path = folder / f"{name}.yaml"
    specs = [each.machine.spec for each in machines]
    hosts = [{"address": spec.public_ip, "internal": spec.private_ip} for spec in specs]
    path.write_text(
        json.dumps({"name": name, "hosts": hosts, "user": "root", "identity": str(key)})
    )
    return path


def trees(machines: list[Booted]) -> list[list[str]]:
    return [machine.output(_TREE).splitlines() for machine in machines]


def differences(before: list[list[str]], after: list[list[str]]) -> list[list[str]]:
    """What differs on each machine."""
    return [sorted(set(a) ^ set(b)) for a, b in zip(before, after, strict=True)]


def run_file(folder: Path, name: str, **fields: Any) -> str:
    path = folder / f"{name}.yaml"
    path.write_text(json.dumps({"name": name, "nodes": 2, **fields}))
    return str(path)


def test_a_cluster_of_own_machines_from_up_to_down(
    machines: list[Booted], person: Person, file: Path, tmp_path: Path
) -> None:
    before = trees(machines)
    first = machines[0].machine.spec.public_ip
    refused = person("up", file, "--yes", code=1)
    assert f"the host key of {first}, or of a jump to it, is not known; log in once" in refused

    up = person("up", file, "--accept-new-host-keys", "--yes")
    assert "  /root/.ssh/authorized_keys            public keys of this cluster" in up
    assert f"  {first:<24} ssh-ed25519 SHA256:" in up
    assert "Cluster lab7 is ready" in up
    assert "openmpi 4.1.4" in up
    # Again, and without the option: the keys are pinned, and nothing is written twice.
    written = trees(machines)
    person("up", file, "--yes")
    assert differences(written, trees(machines)) == [[], []]

    status = person("status", "lab7")
    assert status.splitlines()[0].startswith("lab7: ready since ")
    assert "  node1    running        10.213.0.15      " in status
    mpi = run_file(tmp_path, "mpi", type="mpi", commands=["hostname"], procs_per_node=1)
    done = person("run", mpi, "--cluster", "lab7")
    assert "] ip-10-213-0-14" in done
    assert "] ip-10-213-0-15" in done
    # Without --cluster: it is the only one.
    task = run_file(tmp_path, "task", type="task", commands=["echo rank $GPUCTL_NODE_RANK"])
    done = person("run", task)
    assert "rank 0" in done
    assert "rank 1" in done
    bandwidth = run_file(tmp_path, "bw", type="nccl-tests", min_bytes="8", max_bytes="1K")
    person("run", bandwidth)
    assert person("health", "lab7") == "lab7: 2 nodes, all fit for jobs\n"
    assert "task" in person("ps")
    assert "rank 1" in person("logs", "task")
    assert "--- node1\nip-10-213-0-15\n" in person("exec", "lab7", "--", "hostname")
    assert person("ssh", "lab7", "node1", "--", "hostname") == "welcome\nip-10-213-0-15\n"
    (tmp_path / "sent").write_text("sent")
    person("cp", "lab7", str(tmp_path / "sent"), "node1:/root/sent")
    assert machines[1].output("cat /root/sent; rm /root/sent").endswith("sent")

    asked = person("down", "lab7", code=2)
    assert "Remove everything that gpuctl wrote on 2 machines of cluster lab7?" in asked
    gone = person("down", "lab7", "--yes")
    assert gone.endswith("\nCluster lab7 is gone: nothing of gpuctl is left on 2 machines.\n")
    assert differences(trees(machines), before) == [[], []]
    assert machines[0].output("[ ! -e /run/gpuctl ] && echo none").endswith("none\n")


def test_the_users_ssh_settings_lead_to_machines_behind_another_as_a_user_with_sudo(
    machines: list[Booted], person: Person, key: Path, tmp_path: Path
) -> None:
    first, second = machines
    second.output(
        "useradd -m -s /bin/bash worker && mkdir ~worker/.ssh"
        " && cp ~/.ssh/authorized_keys ~worker/.ssh && chown -R worker: ~worker/.ssh"
        " && echo 'worker ALL=(ALL) NOPASSWD: ALL' > /etc/sudoers.d/worker"
    )
    before = trees(machines)
    door = str(first.machine.spec.public_ip)
    host_key = first.output("cut -d ' ' -f 1,2 /etc/ssh/ssh_host_ed25519_key.pub").splitlines()[-1]
    home = person.home / ".ssh"
    home.mkdir(mode=0o700)
    (home / "known_hosts").write_text(f"{door} {host_key}\n")
    shutil.copy(key, home / "lab")
    (home / "config").write_text(
        f"Host door\n  HostName {door}\n  User root\n"
        "Host inside\n  HostName 10.213.0.15\n  User worker\n  ProxyJump door\n"
        "Host *\n  IdentityFile ~/.ssh/lab\n"
    )
    file = tmp_path / "lab8.yaml"
    hosts = [{"address": "door", "internal": "10.213.0.14"}, {"address": "inside"}]
    file.write_text(json.dumps({"name": "lab8", "hosts": hosts}))
    up = person("up", file, "--accept-new-host-keys", "--yes")
    assert "  10.213.0.15" in up.partition("Host keys that gpuctl has not seen")[2]
    assert f"  {door}" not in up.partition("Host keys that gpuctl has not seen")[2]
    assert "--- node1\nroot ip-10-213-0-15\n" in person(
        "exec", "lab8", "--", "echo $USER $HOSTNAME"
    )
    assert "root" in person("ssh", "lab8", "node1", "--", "id -un")
    file.write_text(json.dumps({"name": "lab8", "hosts": hosts[:1]}))
    assert (
        "error: cluster lab8 is of door,inside, and the file has door; remove what gpuctl wrote"
        " there first: `gpuctl down lab8`; then repeat `up`"
    ) in person("up", file, "--yes", code=2)
    file.write_text(json.dumps({"name": "lab9", "hosts": hosts}))
    taken = person("up", file, "--accept-new-host-keys", "--yes", code=1)
    assert "error: door: it is a node of cluster lab8 of ann@" in taken
    assert "\ninside: it is a node of cluster lab8 of ann@" in taken
    person("down", "lab8", "--yes")
    assert differences(trees(machines), before) == [[], []]


def test_a_broken_node_is_left_out_until_it_is_mended(
    machines: list[Booted], person: Person, file: Path, tmp_path: Path
) -> None:
    person("up", file, "--accept-new-host-keys", "--yes")
    assert person("heal", "lab7") == "lab7: all nodes in service are fit for jobs\n"
    assert "node7 in service; it has node[0-1]" in person("heal", "lab7", "node7", code=2)
    smi = "/usr/bin/nvidia-smi"
    machines[0].output(f"mv {smi} {smi}.kept && printf '#!/bin/sh\\nexit 9\\n' > {smi}")
    machines[0].output(f"chmod 755 {smi}")
    out = person("heal", "lab7", "--yes")
    assert "node0 is out of service: GPUs: expected 8, actual " in out
    status = person("status", "lab7")
    assert "  node0    out of service 10.213.0.14" in status
    assert "mend it, then `gpuctl heal lab7 --return node0`" in status
    task = run_file(tmp_path, "one", type="task", nodes=1, commands=["hostname"])
    assert "[node1] ip-10-213-0-15" in person("run", task)
    both = run_file(tmp_path, "both", type="task", commands=["hostname"])
    assert "run both wants 2 nodes, cluster lab7 has 1" in person("run", both, code=2)
    assert "error: node0: GPUs: expected 8" in person("heal", "lab7", "--return", "node0", code=1)
    machines[0].output(f"mv {smi}.kept {smi}")
    assert person("heal", "lab7", "--return", "node0").endswith("node0 is in service again\n")
    assert "[node0] ip-10-213-0-14" in person("run", both)
    person("down", "lab7", "--yes")


def test_a_second_person_joins_the_cluster_and_leaves_it(
    machines: list[Booted], person: Person, file: Path, tmp_path: Path
) -> None:
    home = tmp_path / "ben"
    home.mkdir()
    ben, before = Person(home, "ben"), trees(machines)
    person("up", file, "--accept-new-host-keys", "--yes")
    keys = [machine.output("cat ~/.ssh/authorized_keys") for machine in machines]
    other = json.loads(file.read_text())
    turned = tmp_path / "turned.yaml"
    turned.write_text(json.dumps({**other, "hosts": other["hosts"][::-1]}))
    refused = ben("up", turned, "--accept-new-host-keys", "--yes", code=2)
    assert "has node0 on 10.213.0.14, and the file has 10.213.0.15 there; name the" in refused
    up = ben("up", file, "--accept-new-host-keys", "--yes")
    assert "It exists, of ann@" in up
    person("up", file, "--yes")  # both keys stay
    used_by = f"\n  used by ann@{socket.gethostname()}, ben@{socket.gethostname()}\n"
    assert used_by in person("status", "lab7")

    long = run_file(tmp_path, "long", type="task", commands=["sleep 1000"])
    person("run", long, "--detach")
    short = run_file(tmp_path, "short", type="task", commands=["echo ben"])
    with ben.running("run", short, "--queue") as process:
        read_until(process, " waits at place 1 of the queue")
        queue = person("queue", "lab7").splitlines()
        assert [line.split()[-1].partition("@")[0] for line in queue[1:]] == ["ann", "ben"]
        asked = person("down", "lab7", "--yes", code=2)
        assert (
            f" is on cluster lab7, which ben@{socket.gethostname()} uses too; `gpuctl stop" in asked
        )
        person("stop", "long")
        assert process.wait() == 0
    assert "of cluster lab7, which ann@" in ben("down", "lab7", code=2)
    left = ben("down", "lab7", "--yes")
    assert left.endswith(": your key is off 2 machines.\n")
    assert [machine.output("cat ~/.ssh/authorized_keys") for machine in machines] == keys
    assert "rank 0" in person("run", run_file(tmp_path, "t", type="task", commands=["echo rank 0"]))
    person("down", "lab7", "--yes")
    assert differences(before, trees(machines)) == [[], []]
