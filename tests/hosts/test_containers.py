"""Clusters of containers, in which no systemd runs: root enters by sshd, as at many GPU clouds."""

import json
from pathlib import Path

import pytest

from tests.hosts.test_own_machines import Person, differences, run_file, trees
from tests.lab.conftest import Boot, Booted

pytestmark = [pytest.mark.lab, pytest.mark.thorough]

PORT = 2222
# What init does for the processes of the container, with its own /run and process ids.
CONTAINER = f"""\
systemd-run --quiet --unit=container unshare --mount --pid --fork --mount-proc sh -c '
  mount --make-rprivate / && mount -t tmpfs tmpfs /run && mkdir /run/sshd
  : > /run/no-id && mount --bind /run/no-id /etc/machine-id
  /usr/sbin/sshd -D -p {PORT} -o PidFile=none & while :; do wait; sleep 1; done'
"""
LEFT = "pgrep -a gpuctl-agent; pgrep -ax sleep | grep 123; ls /run/gpuctl 2> /dev/null; true"


@pytest.fixture(scope="module")
def machines(boot: Boot) -> list[Booted]:
    booted = [boot("dlami", f"10.213.0.{number}") for number in (26, 27)]
    for machine in booted:
        machine.wait()
        machine.output(CONTAINER)
    return booted


def test_a_cluster_of_containers_from_up_to_down(
    machines: list[Booted], key: Path, tmp_path: Path
) -> None:
    (tmp_path / "home").mkdir()
    person, file = Person(tmp_path / "home"), tmp_path / "pods.yaml"
    specs = [each.machine.spec for each in machines]
    hosts = [{"address": spec.public_ip, "internal": spec.private_ip} for spec in specs]
    login = {"user": "root", "identity": str(key), "port": PORT}
    file.write_text(json.dumps({"name": "pods", "hosts": [host | login for host in hosts]}))
    before = trees(machines)
    person("up", str(file), "--accept-new-host-keys", "--yes")
    mpi = run_file(tmp_path, "mpi", type="mpi", commands=["hostname"], procs_per_node=1)
    done = person("run", mpi)
    assert "] ip-10-213-0-26" in done
    assert "] ip-10-213-0-27" in done
    left = ["setsid sleep 1234 & setsid -f sleep 1235 & echo started"]
    person("run", run_file(tmp_path, "leaves", type="task", commands=left))
    assert [machine.output(LEFT) for machine in machines] == ["", ""]

    ticks = ["for i in $(seq 60); do echo tick $i; sleep 0.1; done"]
    person("run", run_file(tmp_path, "ticks", type="task", commands=ticks), "--detach")
    machines[0].output("pkill -KILL -f '^gpuctl-agent.supervise'")
    person("wait", "ticks")
    lines = person("logs", "ticks").splitlines()
    for rank in (0, 1):
        assert [line for line in lines if f"[node{rank}] " in line] == [
            f"[node{rank}] tick {number}" for number in range(1, 61)
        ]
    person("run", run_file(tmp_path, "stays", type="task", commands=["sleep 1236"]), "--detach")
    person("down", "pods", "--yes")
    assert [machine.output(LEFT) for machine in machines] == ["", ""]
    assert differences(trees(machines), before) == [[], []]
