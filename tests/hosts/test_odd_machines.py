"""Machines as many a group has them: a shared home, a noexec /tmp, two jumps, an old Python."""

import json
import shutil
from pathlib import Path

import pytest

from tests.hosts.test_own_machines import Person, differences, run_file, trees
from tests.lab.conftest import Boot

pytestmark = pytest.mark.lab

SHARED_HOME = """\
home=/run/gpuctl-lab-file-systems/home-of-root
mkdir -m 700 $home 2> /dev/null && cp -a /root/. $home
echo 'echo welcome' > $home/.bashrc && mount --bind $home /root
mount -t tmpfs -o noexec tmpfs /tmp && chmod 1777 /tmp
"""
"""One home for all machines, as by NFS."""

OLD_PYTHON = """\
apt-get -qq update && apt-get -qq install -y --no-install-recommends pypy3 > /dev/null
printf '#!/bin/sh\\nexec /usr/bin/pypy3 "$@"\\n' > /usr/local/bin/python3
chmod 755 /usr/local/bin/python3 && python3 -c 'import sys; print(sys.version_info[:2])'
"""


def test_a_shared_home_a_noexec_tmp_two_jumps_and_python_3_9(
    boot: Boot, key: Path, tmp_path: Path
) -> None:
    machines = [boot("dlami", f"10.213.0.{number}") for number in (17, 18, 19)]
    for machine in machines:
        machine.wait()
        machine.output(SHARED_HOME)
        assert machine.output(OLD_PYTHON).endswith("(3, 9)\n")
    door = str(machines[0].machine.spec.public_ip)
    ssh = tmp_path / "home" / ".ssh"
    ssh.mkdir(parents=True, mode=0o700)
    shutil.copy(key, ssh / "id_ed25519")
    (ssh / "config").write_text(
        f"Host first\n  HostName {door}\nHost second\n  HostName 10.213.0.18\nHost *\n  User root\n"
    )
    hosts = [
        {"address": "first", "internal": "10.213.0.17"},
        {"address": "10.213.0.18", "jump": "first"},
        {"address": "10.213.0.19", "jump": "first,second"},
    ]
    file = tmp_path / "lab3.yaml"
    file.write_text(json.dumps({"name": "lab3", "hosts": hosts}))
    person, before = Person(tmp_path / "home"), trees(machines)
    for reads, why in (
        ("read -r answer", "a start-up file of the shell there (~/.bashrc) reads"),
        ("cat > /dev/null", "cannot be examined: no reason given; see that `ssh` runs"),
    ):
        machines[0].output(f"cp ~/.bashrc ~/.bashrc.kept; echo '{reads}' > ~/.bashrc")
        refused = person("up", file, "--accept-new-host-keys", "--yes", code=1)
        assert refused.count(why) == 3
        machines[0].output("mv ~/.bashrc.kept ~/.bashrc < /dev/null")
    assert trees(machines) == before
    up = person("up", file, "--accept-new-host-keys", "--yes")
    for name in (door, "10.213.0.18", "10.213.0.19"):
        assert up.count(f"  {name:<24} ssh-ed25519 SHA256:") == 1
    accepted = machines[2].output("cat ~/.ssh/authorized_keys")
    assert accepted.count("# gpuctl: nodes\n") == 1
    assert accepted.count(" gpuctl lab3") == 2
    mpi = run_file(tmp_path, "mpi", type="mpi", nodes=3, commands=["hostname"], procs_per_node=1)
    done = person("run", mpi)
    for number in (17, 18, 19):
        assert f"] ip-10-213-0-{number}" in done
    assert person("health", "lab3") == "lab3: 3 nodes, all fit for jobs\n"
    person("down", "lab3", "--yes")
    assert differences(before, trees(machines)) == [[]] * 3
