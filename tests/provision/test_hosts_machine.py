"""What a machine of a file with `hosts` says about itself, and why it cannot be a node."""

import subprocess
from typing import Any

import pytest

from config.cluster.hosts_file import Host, HostsCluster
from nodes.users_ssh import Route
from provision.hosts.machine import Machine, examination, problems, read
from provision.hosts.up import ExaminedHost, HostsPlan

ED25519 = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIFZ3TNu1kBNLjBEDjJqdeDuYSOS0zuvROFkMlU6nn04C"
ANSWER = f"""\
Welcome to gpu7!
gpuctl: arrival 10.0.0.2 51234 10.0.0.11 2222
gpuctl: machine 0d6b439b978441189047dec31b01ba51
gpuctl: name gpu7
gpuctl: user root
gpuctl: home /root
gpuctl: system Ubuntu 24.04.1 LTS
gpuctl: address lo 127.0.0.1
gpuctl: address eth0 10.0.0.11
gpuctl: rootlogin without-password
gpuctl: hostkey ssh-rsa AAAAhalf
gpuctl: hostkey {ED25519}
gpuctl: include yes
gpuctl: python 3.12
gpuctl: has input
gpuctl: has bash
gpuctl: has tar
gpuctl: has ssh
gpuctl: has getent
gpuctl: has ip
gpuctl: has writable
gpuctl: has executable
gpuctl: mount /home nfs4 files:/home
gpuctl: mount /data lustre 10.0.0.9@tcp:/fs
gpuctl: gpus 8
gpuctl: gpu       8 NVIDIA H100 80GB HBM3
gpuctl: end
"""
GOOD = read(ANSWER)
assert GOOD is not None


def test_a_machine_describes_itself_behind_a_greeting() -> None:
    assert GOOD is not None
    assert GOOD.text == "Ubuntu 24.04.1 LTS, Python 3.12, 8 GPUs (NVIDIA H100 80GB HBM3)"
    assert (GOOD.port, GOOD.internal(None), GOOD.host_key) == (
        2222, "10.0.0.11", ED25519,
    )  # fmt: skip
    assert list(problems(GOOD, None, "c0ffee")) == []


def test_half_an_answer_is_none() -> None:
    assert read(ANSWER.partition("gpuctl: python")[0]) is None
    assert read("Welcome to gpu7!\n") is None


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"has": GOOD.has - {"tar", "ip"}}, "it lacks tar, ip: install them"),
        (
            {"python": "3.8"},
            "its python3 is 3.8, and gpuctl's agent needs 3.9: install python3",
        ),
        (
            {"has": GOOD.has - {"input"}},
            "a start-up file of the shell there (~/.bashrc) reads what gpuctl sends to commands:"
            " let it read in interactive shells alone",
        ),
        ({"python": ""}, "its python3 is none, and gpuctl's agent needs 3.9: install python3"),
        (
            {"has": GOOD.has - {"executable"}},
            "no program can be started in /var/lib there: mount it without `noexec`",
        ),
        (
            {"has": GOOD.has - {"executable"}, "user": "research", "root_login": "no"},
            "no program can be started in /var/tmp there: mount it without `noexec`",
        ),
        ({"host_key": ""}, "it has no host key of sshd"),
        (
            {"root_login": "no"},
            "its sshd has `PermitRootLogin no`, and nodes log in to each other as root: write"
            " prohibit-password there",
        ),
        (
            {"includes_settings": False},
            "its /etc/ssh/ssh_config does not include ssh_config.d: write `Include"
            " /etc/ssh/ssh_config.d/*.conf` as its first line",
        ),
        (
            {"has": GOOD.has - {"writable"}},
            "/var/lib cannot be written there: see whether the disk is full or read-only",
        ),
        (
            {"arrival": "::1"},
            "the other nodes' address for it is ::1, and it has 10.0.0.11: set `internal`",
        ),
        (
            {"cluster": "beef01 lab3 of ann@laptop, since 2026-11-29 06:12 UTC"},
            "it is a node of cluster lab3 of ann@laptop, since 2026-11-29 06:12 UTC: `gpuctl"
            " down` there removes what that wrote",
        ),
        (
            {"cluster": "another"},
            "it is a node of another cluster of gpuctl: `gpuctl down` there removes what that"
            " wrote",
        ),
    ],
)
def test_a_problem_of_a_machine_has_its_remedy(changes: dict[str, Any], problem: str) -> None:
    assert GOOD is not None
    assert list(problems(GOOD.model_copy(update=changes), None, "c0ffee")) == [problem]


def test_a_machine_of_the_same_cluster_has_no_problem() -> None:
    assert GOOD is not None
    ours = GOOD.model_copy(
        update={"cluster": "c0ffee lab7 of ann@laptop, since 2026-11-29 06:12 UTC"}
    )
    assert list(problems(ours, "10.0.0.11", "c0ffee")) == []
    assert len(list(problems(ours, "10.9.9.9", "c0ffee"))) == 1


def test_a_folder_is_shared_if_all_machines_have_the_same_file_system() -> None:
    assert GOOD is not None
    other = GOOD.model_copy(update={"mounts": {"/home": "nfs4 files:/home", "/data": "nfs4 x:/y"}})
    hosts = tuple(
        ExaminedHost(Host(address=address), Route(address, 22), machine)
        for address, machine in (("gpu7", GOOD), ("gpu8", other))
    )
    file = HostsCluster(name="lab7", hosts=(Host(address="gpu7"), Host(address="gpu8")))
    assert HostsPlan(file, "c0ffee", hosts).shared == {"/home": "nfs4 files:/home"}
    assert HostsPlan(file, "c0ffee", hosts[:1]).shared == {}
    assert list(problems(GOOD, None, "c0ffee", "/scratch")) == [
        "/scratch, which is `shared`, is no folder there in which root may write"
    ]


def test_all_problems_come_at_once() -> None:
    assert len(list(problems(Machine(), None, "c0ffee"))) >= 5


def test_the_examination_answers_on_this_machine() -> None:
    done = subprocess.run(
        ["sh", "-s"], input=examination(""), capture_output=True, text=True, check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SSH_CONNECTION": "127.0.0.1 5 127.0.0.1 22"},
    )  # fmt: skip
    machine = read(done.stdout)
    assert machine is not None
    assert machine.name
    assert machine.addresses["127.0.0.1"] == "lo"
    assert machine.python.startswith("3.")
