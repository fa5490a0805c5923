"""What a machine of a file with `hosts` says about itself, and why it cannot be a node."""

import subprocess
from dataclasses import replace
from typing import Any

import pytest

from provision.hosts.machine import Machine, examination, problems, read

ANSWER = """\
Welcome to gpu7!
gpuctl: arrival 10.0.0.2 51234 10.0.0.11 2222
gpuctl: machine 0d6b439b978441189047dec31b01ba51
gpuctl: name gpu7
gpuctl: clock 1795932000
gpuctl: home /root
gpuctl: system Ubuntu 24.04.1 LTS
gpuctl: address lo 127.0.0.1
gpuctl: address eth0 10.0.0.11
gpuctl: rootlogin without-password
gpuctl: hostkey ssh-rsa AAAArsa
gpuctl: hostkey ssh-ed25519 AAAAed
gpuctl: include yes
gpuctl: python 3.12
gpuctl: has systemd
gpuctl: has bash
gpuctl: has tar
gpuctl: has ssh
gpuctl: has systemd-run
gpuctl: has getent
gpuctl: has ip
gpuctl: has writable
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
        2222, "10.0.0.11", "ssh-ed25519 AAAAed",
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
            {"has": GOOD.has - {"systemd"}},
            "systemd does not run there, which starts gpuctl's agent: use a machine with systemd",
        ),
        (
            {"python": "3.8"},
            "its python3 is 3.8, and gpuctl's agent needs 3.9: install python3",
        ),
        ({"python": ""}, "its python3 is none, and gpuctl's agent needs 3.9: install python3"),
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
    assert list(problems(replace(GOOD, **changes), None, "c0ffee")) == [problem]


def test_a_machine_of_the_same_cluster_has_no_problem() -> None:
    assert GOOD is not None
    ours = replace(GOOD, cluster="c0ffee lab7 of ann@laptop, since 2026-11-29 06:12 UTC")
    assert list(problems(ours, "10.0.0.11", "c0ffee")) == []
    assert len(list(problems(ours, "10.9.9.9", "c0ffee"))) == 1


def test_all_problems_come_at_once() -> None:
    assert len(list(problems(Machine(), None, "c0ffee"))) >= 5


def test_the_examination_answers_on_this_machine() -> None:
    done = subprocess.run(
        ["sh", "-s"], input=examination(), capture_output=True, text=True, check=True,
        env={"PATH": "/usr/sbin:/usr/bin:/sbin:/bin", "SSH_CONNECTION": "127.0.0.1 5 127.0.0.1 22"},
    )  # fmt: skip
    machine = read(done.stdout)
    assert machine is not None
    assert machine.name
    assert machine.addresses["127.0.0.1"] == "lo"
    assert machine.python.startswith("3.")
