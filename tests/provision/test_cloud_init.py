"""User data as cloud-init takes it, and the set-up script as bash runs it."""

import gzip
import shutil
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.cluster import Cluster
from config.progress import silent
from config.resolved import Image
from lab.image import ensure_image
from provision.cloud_init import bastion_user_data, node_user_data, setup_script

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFnZ3JlZ2F0ZS1rZXktZm9yLXRlc3RzLW9ubHkwMDAw gpuctl demo"
GOLDEN = Path(__file__).parent / "golden"
DLAMI = Image(
    id="ami-1",
    name="Deep Learning Base",
    root_device="/dev/sda1",
    architecture="x86_64",
    has_software=True,
)
STOCK = DLAMI.model_copy(update={"name": "debian-12", "has_software": False})
FULL: dict[str, Any] = {
    "software": {
        "packages": ("htop", "git"),
        "setup": ("echo it's here", "cd /opt\ngit clone https://example.org/a\n"),
    },
    "lifetime": {"max": "8h"},
}


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", **changes}
    )


DOCUMENTS = {
    "node-dlami.yaml": node_user_data(cluster(), DLAMI, KEY),
    "node-stock-full.yaml": node_user_data(cluster(**FULL), STOCK, KEY),
    "bastion.yaml": bastion_user_data(cluster(**FULL), KEY),
}


@pytest.mark.parametrize("name", DOCUMENTS)
def test_user_data_is_as_reviewed(name: str) -> None:
    assert DOCUMENTS[name] == (GOLDEN / name).read_text()


@pytest.mark.parametrize("name", DOCUMENTS)
def test_user_data_is_small_yaml_without_a_private_key(name: str) -> None:
    text = DOCUMENTS[name]
    assert text.startswith("#cloud-config\n")
    assert isinstance(yaml.safe_load(text), dict)
    assert len(gzip.compress(text.encode())) < 4096
    assert "PRIVATE" not in text


@pytest.mark.lab
@pytest.mark.parametrize("name", DOCUMENTS)
def test_cloud_init_finds_no_fault(name: str) -> None:
    """Asked of the cloud-init of the lab's image, which is Debian 12's."""
    image = ensure_image("stock", silent)
    done = subprocess.run(
        [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--read-only", "--pipe"),
            *("--resolv-conf=off", "-D", str(image), f"--bind-ro={GOLDEN / name}:/run/user-data"),
            *("cloud-init", "schema", "--config-file", "/run/user-data"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Valid cloud-config: /run/user-data\n")


def run_script(
    tmp_path: Path, *setup: str, mpirun: bool = True
) -> "subprocess.CompletedProcess[str]":
    """The script with its paths under `tmp_path`, and commands of the system's replaced."""
    bin_dir = tmp_path / "bin"
    bin_dir.mkdir(exist_ok=True)
    if mpirun:
        (bin_dir / "mpirun").write_text("#!/bin/sh\necho 'mpirun (Open MPI) 4.1.4'\n")
        (bin_dir / "mpirun").chmod(0o755)
    (bin_dir / "systemctl").write_text("#!/bin/sh\n")
    (bin_dir / "systemctl").chmod(0o755)
    for name in ("bash", "cat", "mkdir", "printf"):
        if not (bin_dir / name).exists():
            (bin_dir / name).symlink_to(str(shutil.which(name)))
    script = setup_script(cluster(software={"setup": setup}), DLAMI)
    script = script.replace("cd /root", f"cd {tmp_path}")
    for folder in ("/var/lib/gpuctl", "/etc/", "/dev/console", "/opt/amazon"):
        script = script.replace(folder, f"{tmp_path}{folder}")
    for folder in ("etc/ssh", "etc/security/limits.d", "etc/systemd", "dev"):
        (tmp_path / folder).mkdir(parents=True, exist_ok=True)
    (tmp_path / "etc/ssh/ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA host\n")
    return subprocess.run(
        ["bash", "-c", script],
        env={"PATH": str(bin_dir)},
        capture_output=True,
        text=True,
        check=False,
    )


def test_commands_run_in_order_in_one_shell(tmp_path: Path) -> None:
    done = run_script(tmp_path, "greeting=hello", 'echo "$greeting, it\'s me"')
    assert done.returncode == 0, done.stderr
    assert "==> setup 2 of 2: echo \"$greeting, it's me\"\nhello, it's me\n" in done.stdout
    steps = (tmp_path / "var/lib/gpuctl/steps").read_text().splitlines()
    assert steps == [
        "host keys",
        "limits",
        "check Open MPI",
        "setup 1 of 2: greeting=hello",
        'setup 2 of 2: echo "$greeting, it\'s me"',
        "done",
    ]


def test_the_first_failing_command_ends_it_and_is_named(tmp_path: Path) -> None:
    done = run_script(tmp_path, "echo no such file; (exit 3)\necho not reached", "echo not either")
    assert done.returncode == 3
    assert done.stdout.endswith(
        "no such file\n"
        "gpuctl: 'setup 1 of 2: echo no such file; (exit 3)' failed with exit code 3\n"
    )
    assert "not reached" not in done.stdout
    assert "not either" not in done.stdout


def test_host_keys_reach_the_console_before_anything_slow(tmp_path: Path) -> None:
    run_script(tmp_path, "false")
    assert (tmp_path / "dev/console").read_text() == (
        "-----BEGIN SSH HOST KEY KEYS-----\nssh-ed25519 AAAA host\n"
        "-----END SSH HOST KEY KEYS-----\n"
    )


def test_an_image_without_open_mpi_fails_with_what_to_do(tmp_path: Path) -> None:
    done = run_script(tmp_path, mpirun=False)
    assert done.returncode == 1
    assert "this image has no mpirun: add openmpi-bin to software.packages\n" in done.stdout
