"""Machines that people have: others may be root there, and what one says is written on others."""

import asyncio
import json
import os
import shlex
import subprocess
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from config.cluster.hosts_file import HostsCluster
from config.errors import InvalidFiles, NodeError
from config.foreign import Malformed
from config.loading.load import load_any_cluster
from config.progress import silent
from config.target import Target
from nodes.inventory import Node
from nodes.users_ssh import Login, run_script
from provision.hosts.footprint import Footprint, writing
from provision.hosts.machine import problems, read
from provision.hosts.up import plan
from provision.setup.node_hardware import read as read_hardware
from provision.setup.nodes_key import NodesKey
from provision.state.store import ClusterStore
from tests.engine.conftest import make_inventory
from tests.provision.test_hosts_machine import ANSWER, ED25519

LIMIT_S = 60.0
WRONG = {
    "an address that is an option": (
        "arrival 10.0.0.2 5 -oProxyCommand=id 22",
        "arrival: String should match pattern '^[A-Za-z0-9:][A-Za-z0-9.:-]{0,252}$'",
    ),
    "a port beyond all": (
        "arrival 10.0.0.2 5 10.0.0.11 99999",
        "port: Input should be less than or equal to 65535",
    ),
    "a port of a shell": (
        "arrival 10.0.0.2 5 10.0.0.11 22;id",
        "port: Input should be a valid integer, unable to parse string as an integer",
    ),
    "an id of a shell": (
        "machine $(id)",
        "id: String should match pattern '^[A-Za-z0-9][A-Za-z0-9-]{0,62}$'",
    ),
    "a home that is none": (
        "home $(id)",
        "home: String should match pattern '^(/[A-Za-z0-9_.][A-Za-z0-9_./-]{0,255})?$'",
    ),
    "a version of many digits": (
        f"python 3.{'9' * 5000}",
        "python: String should match pattern '^([0-9]{1,4}\\.[0-9]{1,4})?$'",
    ),
    "GPUs without end": ("gpus 99999999999", "gpus: Input should be less than or equal to 1024"),
    "more digits than a number has": (
        f"gpus {'9' * 5000}",
        "gpus: Unable to parse input string as an integer, exceeded maximum size",
    ),
    "a colour of a terminal": (
        "system \x1b[31mred",
        "system: String should match pattern '^[^\\x00-\\x1f\\x7f]{0,200}$'",
    ),
}


def answer(line: str) -> str:
    """Return the answer of a machine with this line in place of its own of the same kind."""
    kind = line.partition(" ")[0]
    kept = [own for own in ANSWER.splitlines() if not own.startswith(f"gpuctl: {kind} ")]
    return "\n".join([*kept[:-1], f"gpuctl: {line}", kept[-1]])


@pytest.mark.parametrize("case", WRONG)
def test_a_value_that_no_machine_has_is_one_line(case: str) -> None:
    line, why = WRONG[case]
    with pytest.raises(Malformed) as wrong:
        read(answer(line))
    assert str(wrong.value) == why


@pytest.mark.parametrize(
    "key",
    [
        "ssh-ed25519 AAAAhalf",
        f"@cert-authority * {ED25519}",
        "ssh-ed25519",
        "ssh-dss AAAA",
        "$(id)",
    ],
)
def test_a_host_key_that_is_none_is_not_pinned(key: str) -> None:
    lines = [line for line in ANSWER.splitlines() if "hostkey" not in line]
    machine = read("\n".join([*lines[:-1], f"gpuctl: hostkey {key}", lines[-1]]))
    assert machine is not None
    assert list(problems(machine, None, "c0ffee")) == ["it has no host key of sshd"]


def test_what_follows_a_host_key_is_not_pinned() -> None:
    machine = read(answer(f"hostkey {ED25519} x\u00a0y @cert-authority"))
    assert machine is not None
    assert machine.host_key == ED25519


def ssh_that_runs(command: str, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an `ssh` in PATH whose machine answers what the command prints."""
    ssh = folder / "ssh"
    ssh.write_text(
        "#!/bin/sh\ncase $1 in -G) printf 'hostname 10.0.0.11\\nport 22\\nuser root\\n' ;;"
        f" *) {command} ;; esac\n"
    )
    ssh.chmod(0o755)
    monkeypatch.setenv("PATH", f"{folder}:{os.environ['PATH']}")


@pytest.mark.parametrize("case", WRONG)
def test_up_says_which_machine_is_wrong_and_writes_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, case: str
) -> None:
    line, why = WRONG[case]
    (tmp_path / "answer").write_text(answer(line))
    ssh_that_runs(f"cat {shlex.quote(str(tmp_path / 'answer'))}", tmp_path, monkeypatch)
    cluster = HostsCluster.model_validate_json('{"name": "lab7", "hosts": [{"address": "gpu9"}]}')
    store = ClusterStore(Target("hosts", "", tmp_path / "state"))
    with pytest.raises(NodeError) as wrong:
        plan(cluster, store, silent)
    assert str(wrong.value) == (
        f"gpu9: what it says about itself is wrong: {why}; correct it there, or leave the machine"
        " out of `hosts`"
    )
    assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("command", ["exec yes", "yes >&2", "yes & yes >&2"])
def test_an_answer_without_end_is_one_line(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str
) -> None:
    ssh_that_runs(command, tmp_path, monkeypatch)
    with pytest.raises(NodeError) as endless:
        asyncio.run(run_script(Login("gpu9"), "true", LIMIT_S))
    assert endless.value.message == "gpu9 answered more than 1 MiB"


def test_a_complaint_is_a_line_for_a_terminal(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_that_runs("yes x | head -n 300000 | paste -s -d y >&2; exit 1", tmp_path, monkeypatch)
    done = asyncio.run(run_script(Login("gpu9"), "true", LIMIT_S))
    assert (done.exit_status, done.complaint) == (1, "xy" * 500)


def test_a_silent_machine_is_left_after_its_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    ssh_that_runs("sleep 600 & exec sleep 600", tmp_path, monkeypatch)
    with pytest.raises(NodeError) as silence:
        asyncio.run(run_script(Login("gpu9"), "true", 0.2))
    assert silence.value.message == "gpu9 did not answer within 0.2 s"


PLACE = Footprint("c0ffee", "root", "/root")
KEYS = ("ssh-ed25519 AAAA client", NodesKey("private", "ssh-ed25519 AAAA nodes"))


def hosts_of(names: list[str]) -> list[str]:
    """Return the lines that a node gets for /etc/hosts, if its machines have these names."""
    inventory = make_inventory(len(names))
    known = [(22, ED25519)] * len(names)
    script = writing(PLACE, inventory.nodes, names, "mark", KEYS, known)
    (words,) = [
        shlex.split(part) for part in script.split("put_first ") if part.startswith("/etc/hosts")
    ][:1]
    text = words[2]
    return [line.partition(" ")[2] for line in text.splitlines() if not line.startswith("#")]


@pytest.mark.parametrize(
    ("names", "written"),
    [
        (["gpu7", "gpu8.example.org"], ["node0 gpu7", "node1 gpu8.example.org"]),
        (["node1", "node2"], ["node0", "node1 node2"]),
        (["node0", "node1"], ["node0", "node1"]),
        (["same", "same"], ["node0", "node1"]),
        (["localhost", "gpu8"], ["node0", "node1 gpu8"]),
        (["a pypi.org", "-x"], ["node0", "node1"]),
        (["", "$(id)"], ["node0", "node1"]),
    ],
)
def test_a_machine_takes_no_name_of_another(names: list[str], written: list[str]) -> None:
    assert hosts_of(names) == written


def test_what_is_written_is_a_script_of_sh() -> None:
    inventory = make_inventory(2)
    names, known = ["'; touch evil; '", "$(id)"], [(22, ED25519)] * 2
    script = writing(PLACE, inventory.nodes, names, "a'b", KEYS, known)
    done = subprocess.run(["sh", "-n"], input=script, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    assert "touch evil" not in script


def link_to_our_folder(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere, target_is_directory=True)


def link_to_nothing(place: Path, elsewhere: Path) -> None:
    place.symlink_to(elsewhere / "nothing")


def file_in_its_place(place: Path, elsewhere: Path) -> None:
    place.touch()


@pytest.mark.parametrize("plant", [link_to_our_folder, link_to_nothing, file_in_its_place])
def test_no_key_is_written_into_what_another_user_has_put_there(
    tmp_path: Path, plant: Callable[[Path, Path], None]
) -> None:
    """Without root gpuctl's folder is in /var/tmp, where each user of a machine may create it."""
    user = Footprint(uuid.uuid4().hex[:12], "ubuntu", "/home/ubuntu")
    inventory = make_inventory(1)
    script = writing(user, inventory.nodes, ["gpu7"], "mark", KEYS, [(22, ED25519)])
    place, elsewhere = Path(user.folder), tmp_path / "elsewhere"
    getent = tmp_path / "getent"  # the home is not this machine's
    getent.write_text(f"#!/bin/sh\necho ubuntu:x:1000:1000::{tmp_path / 'home'}:/bin/sh\n")
    getent.chmod(0o755)
    elsewhere.mkdir()
    plant(place, elsewhere)
    try:
        done = subprocess.run(
            ["sh", "-s"],
            input=script,
            env={"PATH": f"{tmp_path}:{os.environ['PATH']}"},
            capture_output=True,
            text=True,
            check=False,
        )
    finally:
        place.unlink()
    assert (done.returncode, done.stderr) == (
        1,
        f"{place} is not this user's: root has to remove it\n",
    )
    assert list(elsewhere.iterdir()) == []
    assert not (tmp_path / "home").exists()


NODE = make_inventory(1).nodes[0]
HARDWARE: dict[str, tuple[str, Callable[[Node], Any], Any]] = {
    "another program": ("gpuctl: program evil\n", lambda node: node.software, {}),
    "a launcher without a version": ("gpuctl: launcher x\n", lambda node: node.software, {}),
    "a line that is none": ("gpuctl:  \ngpuctl: x y\n", lambda node: node.software, {}),
}


@pytest.mark.parametrize("case", HARDWARE)
def test_properties_that_gpuctl_does_not_know_are_left_out(case: str) -> None:
    text, field, expected = HARDWARE[case]
    assert field(read_hardware(NODE, text)) == expected


WORD = "String should match pattern '^([A-Za-z0-9_][A-Za-z0-9_.:+~-]{0,127})?$'"


@pytest.mark.parametrize(
    ("line", "why"),
    [
        ("efa x", "efa: Input should be a valid integer, unable to parse string as an integer"),
        ("efa 99999", "efa: Input should be less than or equal to 1024"),
        ("interface eth0;id", f"interface: {WORD}"),
        ("interface -x", f"interface: {WORD}"),
        ("hca $(id) InfiniBand", f"hcas.0: {WORD}"),
        ("module torch 2.9\x1b[31m", f"software.torch: {WORD}"),
    ],
)
def test_a_property_that_no_node_has_is_one_line(line: str, why: str) -> None:
    with pytest.raises(NodeError) as wrong:
        read_hardware(NODE, f"gpuctl: {line}\n")
    assert wrong.value.message == (
        f"{NODE.name} ({NODE.private_ip}) describes itself wrongly: {why}"
    )


@pytest.mark.parametrize("jump", ["x;touch evil", "$(touch evil)", "-oProxyCommand=id", "a\nb"])
def test_a_jump_of_a_file_is_no_command(tmp_path: Path, jump: str) -> None:
    """OpenSSH before 9.6 gives a jump to a shell as it is (CVE-2023-51385)."""
    file = tmp_path / "cluster.yaml"
    file.write_text(f"name: lab7\nhosts:\n  - {{address: gpu9, jump: {json.dumps(jump)}}}\n")
    with pytest.raises(InvalidFiles, match=r"E203 'hosts\[0\]\.jump' is "):
        load_any_cluster(file)
