"""What a node says of its hardware and software, in answers of several images."""

import os
import subprocess
from importlib.util import find_spec
from pathlib import Path

import pytest

from nodes.inventory import Node
from provision.setup.node_hardware import read, script

NODE = Node(
    rank=0, name="node0", instance_id="i-0", private_ip="127.0.0.1", gpus=8, slots=8
)  # fmt: skip

HYDRA = "HYDRA build details: Version: 5.0.2 Release Date: Mon Jul 13 CC: gcc"
INTEL = "Intel(R) MPI Library for Linux* OS, Version 2021.18 Build 20260519 (id: 2bb9d2ea)"


def test_a_deep_learning_image_on_p4d() -> None:
    found = read(
        NODE,
        "Welcome to the image\n"
        "gpuctl: interface ens32\n"
        "gpuctl: efa 4\n"
        "gpuctl: launcher mpirun (Open MPI) 4.1.7 Report bugs to http://www.open-mpi.org/\n"
        "gpuctl: launcher mpirun (Open MPI) 5.0.8 Report bugs to https://www.open-mpi.org/\n"
        "gpuctl: software docker Docker version 28.1.1, build 4eba377\n"
        "gpuctl: program torchrun\n"
        "gpuctl: program srun\n"
        "gpuctl: module torch 2.9.1+cu130\n"
        "gpuctl: module ray \n",
    )
    assert (found.interface, found.efa, found.hcas) == ("ens32", 4, ())
    assert found.software == {
        "openmpi": "4.1.7",
        "docker": "28.1.1",
        "torch": "2.9.1+cu130",
        "slurm": "installed",
        "ray": "installed",
    }
    assert found.model_copy(
        update={"interface": "", "efa": 0, "software": {}}
    ) == NODE  # fmt: skip


def test_other_launchers_and_other_devices() -> None:
    found = read(
        NODE,
        "gpuctl: interface \n"
        "gpuctl: hca mlx5_0 InfiniBand\n"
        "gpuctl: hca mlx5_bond_0 Ethernet\n"
        "gpuctl: efa 0\n"
        f"gpuctl: launcher {HYDRA}\n"
        f"gpuctl: launcher {INTEL}\n"
        "gpuctl: launcher something else 1.2.3\n"
        "gpuctl: software podman podman version 4.3.1\n",
    )
    assert found.hcas == ("mlx5_0:InfiniBand", "mlx5_bond_0:Ethernet")
    assert found.software == {"mpich": "5.0.2", "intel": "2021.18", "podman": "4.3.1"}
    assert (found.interface, found.efa) == ("", 0)


def test_an_answer_of_which_nothing_is_known_leaves_everything_empty() -> None:
    assert read(NODE, "stty: standard input: not a terminal\n") == NODE


@pytest.fixture
def programs(tmp_path: Path) -> Path:
    """A folder of programs that come first on the PATH."""

    def program(name: str, text: str) -> None:
        path = tmp_path / name
        path.write_text(f"#!/bin/sh\n{text}\n")
        path.chmod(0o755)

    program("mpirun", "printf 'mpirun (Open MPI) 4.1.4\\n\\nReport bugs\\n'")
    program("fi_info", 'for n in 0 0 1 2; do echo "    domain: rdmap${n}s0-rdm"; done')
    program("podman", "echo podman version 4.3.1")
    program("mamba", "true")
    program("docker", "echo 'docker: no such thing' >&2; exit 1")
    return tmp_path


def test_the_script_asks_all_of_it(programs: Path) -> None:
    path = f"{programs}:{os.environ['PATH']}"
    done = subprocess.run(
        ["bash", "-s"], input=script(NODE), env=os.environ | {"PATH": path},
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    found = read(NODE, done.stdout)
    assert done.stderr == ""
    assert (found.interface, found.efa) == ("lo", 3)
    assert found.software["openmpi"] == "4.1.4"
    assert found.software["podman"] == "4.3.1"
    assert "docker" not in found.software
    assert found.software["conda"] == "installed"
    assert ("torch" in found.software) == (find_spec("torch") is not None)


def test_an_inventory_of_before_is_readable() -> None:
    old = NODE.model_dump(exclude={"efa", "hcas", "interface", "software", "topology"})
    assert Node.model_validate(old) == NODE
