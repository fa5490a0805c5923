"""Clusters of machines on which the login is a user, and cannot become root.

Both have one home, as on machines with NFS.
"""

import json
from pathlib import Path

import pytest

from tests.hosts.test_own_machines import Person, differences, run_file, trees
from tests.lab.conftest import Boot, Booted

pytestmark = pytest.mark.lab

USER = """\
useradd -m -s /bin/bash research
shared=/run/gpuctl-lab-file-systems/home
if mkdir $shared; then
  mkdir -m 700 $shared/.ssh && cp ~/.ssh/authorized_keys $shared/.ssh
  echo 'Host *\n  User nobody' > $shared/.ssh/config && chown -R research: $shared
fi
mount --bind $shared ~research
command -v sudo && rm -f /usr/bin/sudo; true
"""
LEFT = "pgrep -a gpuctl-agent; pgrep -ax sleep | grep 123; ls -d /dev/shm/gpuctl*; true"


@pytest.fixture(scope="module")
def machines(boot: Boot) -> list[Booted]:
    booted = [boot("dlami", f"10.213.0.{number}") for number in (28, 29)]
    for machine in booted:
        machine.wait()
        machine.output(USER)
    return booted


def test_a_cluster_without_root_from_up_to_down(
    machines: list[Booted], key: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    person, file = Person(tmp_path / "home"), tmp_path / "login.yaml"
    specs = [each.machine.spec for each in machines]
    hosts = [{"address": spec.public_ip, "internal": spec.private_ip} for spec in specs]
    login = {"user": "research", "identity": str(key)}
    content = {"name": "login", "shared": "/home/research", "hosts": hosts, **login}
    file.write_text(json.dumps(content))
    mixed = tmp_path / "mixed.yaml"
    as_root = {**hosts[1], "user": "root"}
    mixed.write_text(json.dumps({"name": "mixed", "hosts": [hosts[0], as_root], **login}))
    first, second = (host["address"] for host in hosts)
    assert (
        "error: the nodes of a cluster need one user, and gpuctl is root on"
        f" {second}, research on {first}: set `user`"
    ) in person("up", str(mixed), "--accept-new-host-keys", "--yes", code=1)
    before = trees(machines)
    up = person("up", str(file), "--accept-new-host-keys", "--yes")
    assert "On each of them gpuctl writes, as research:" in up
    shows = ["hostname; id -un; echo $GPUCTL_CHECKPOINT_DIR"]
    mpi = run_file(tmp_path, "mpi", type="mpi", commands=shows, procs_per_node=1)
    done = person("run", mpi)
    for text in ("ip-10-213-0-28", "ip-10-213-0-29", "research", "/home/research/gpuctl/mpi-"):
        assert f"] {text}" in done
    left = ["setsid sleep 1234 & setsid -f sleep 1235 & ssh node1 hostname"]
    done = person("run", run_file(tmp_path, "leaves", type="task", commands=left))
    assert "[node0] ip-10-213-0-29" in done
    assert "research" in person("exec", "login", "--", "id -un")
    person("health", "login")
    person("run", run_file(tmp_path, "stays", type="task", commands=["sleep 1236"]), "--detach")
    person("down", "login", "--yes")
    assert [machine.output(LEFT) for machine in machines] == ["", ""]
    assert differences(trees(machines), before) == [[], []]
