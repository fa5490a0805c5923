"""User data as cloud-init takes it, and the set-up script as bash runs it."""

import email
import gzip
import json
import shutil
import subprocess
import sys
from dataclasses import replace
from email.message import Message
from pathlib import Path
from typing import Any

import pytest
import yaml

from config.cluster.cluster_file import Cluster
from config.errors import InputError
from config.progress import silent
from infra.program.interface_layout import interfaces
from infra.program.user_data import LIMIT
from lab.images.image import ensure_image
from provision.setup.cloud_init import bastion_user_data, node_user_data
from provision.setup.software.gpu_hardware import Hardware, hardware
from provision.setup.software.script import STEPS, check_script, setup_script
from tests import golden
from tests.infra.region import instance_type

KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIGFnZ3JlZ2F0ZS1rZXktZm9yLXRlc3RzLW9ubHkwMDAw gpuctl demo"
GOLDEN = Path(__file__).parent / "golden"
P4D = Hardware("p4d.24xlarge", gpus=8, sm="80", efa=4, nvswitch=True, local_disks=8)
CPU = Hardware("c5.large", gpus=0, sm="", efa=0, nvswitch=False)
FULL: dict[str, Any] = {
    "software": {"packages": ("htop", "git"), "efa": "1.50.0", "openmpi": 5},
    "setup": {
        "files": {"/etc/motd": "two\nlines\n"},
        "commands": ("echo it's here", "cd /opt\ngit clone https://example.org/a\n"),
    },
    "lifetime": {"max": "8h"},
}
IMAGES = (
    "dlami-ubuntu-24.04",
    "dlami-ubuntu-22.04",
    "dlami-al2023",
    "stock-ubuntu-24.04",
    "stock-debian-12",
    "ami-0123456789abcdef0",
)
TYPES = ("g5.8xlarge", "g6e.48xlarge", "p4d.24xlarge", "p5.48xlarge", "p6-b300.48xlarge")


def cluster(**changes: Any) -> Cluster:
    return Cluster.model_validate(
        {"name": "demo", "nodes": 2, "instance_type": "p4d.24xlarge", **changes}
    )


UPDATES = ("apt-daily.timer", "apt-daily-upgrade.timer", "unattended-upgrades.service")

DOCUMENTS = {
    "node-dlami.mime": node_user_data(cluster(), P4D, KEY),
    "node-stock-full.mime": node_user_data(cluster(image="stock-ubuntu-24.04", **FULL), P4D, KEY),
    "bastion.yaml": bastion_user_data(cluster(**FULL), KEY),
}


def parts(document: str) -> list[tuple[str, str]]:
    """Type and text of each part, as Python's own parser and cloud-init's read them."""
    message = email.message_from_string(document)
    found = message.get_payload()
    if not isinstance(found, list):
        return [("text/cloud-config", document)]
    assert all(isinstance(part, Message) for part in found)
    return [
        (part.get_content_type(), bytes(part.get_payload(decode=True)).decode())  # type: ignore
        for part in found
    ]


@pytest.mark.parametrize("name", DOCUMENTS)
def test_user_data_is_as_reviewed(name: str) -> None:
    golden.check(GOLDEN / name, DOCUMENTS[name])


@pytest.mark.parametrize("name", DOCUMENTS)
def test_user_data_has_a_cloud_config_and_no_private_key(name: str) -> None:
    kinds = [kind for kind, _ in parts(DOCUMENTS[name])]
    config = parts(DOCUMENTS[name])[0][1]
    assert kinds in (
        ["text/cloud-config"],
        ["text/cloud-config", "text/x-shellscript-per-boot"],
    )
    assert config.startswith("#cloud-config\n")
    assert isinstance(yaml.safe_load(config), dict)
    assert "PRIVATE" not in DOCUMENTS[name]


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("image", IMAGES)
def test_user_data_of_each_image_fits_and_has_the_set_up(image: str, name: str) -> None:
    """shellcheck reads these scripts in `tests/plans/test_user_data.py`."""
    kind = instance_type(name)
    machine = hardware(kind, interfaces(kind, "auto"))
    asked = cluster(image=image, instance_type=name, software={"packages": ("htop",)})
    document = node_user_data(asked, machine, KEY)
    assert parts(document)[1][1].strip() == setup_script(asked, machine).strip()
    assert len(gzip.compress(document.encode())) < LIMIT / 2


def test_letters_beyond_ascii_arrive() -> None:
    """cloud-init decodes as Python's email package does, which mangles them in an 8bit part."""
    asked = cluster(setup={"commands": ("echo größer, 更大",)})
    assert "echo größer, 更大" in parts(node_user_data(asked, P4D, KEY))[1][1]


def test_files_of_the_user_are_written_by_cloud_init() -> None:
    config = yaml.safe_load(parts(DOCUMENTS["node-stock-full.mime"])[0][1])
    assert config["write_files"][1] == {
        "path": "/etc/motd",
        "content": "two\nlines\n",
        "permissions": "0644",
    }


@pytest.mark.lab
@pytest.mark.parametrize("name", DOCUMENTS)
def test_cloud_init_finds_no_fault(name: str, tmp_path: Path) -> None:
    """Asked of the cloud-init of the lab's image, which is Debian 13's."""
    image = ensure_image("stock", silent)
    config = tmp_path / "config"
    config.write_text(parts(DOCUMENTS[name])[0][1])
    done = subprocess.run(
        [
            *("systemd-nspawn", "--quiet", "--register=no", "--keep-unit", "--read-only", "--pipe"),
            *("--resolv-conf=off", "-D", str(image), f"--bind-ro={config}:/run/user-data"),
            *("cloud-init", "schema", "--config-file", "/run/user-data"),
        ],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout) == (0, "Valid schema /run/user-data\n")


def titles(image: str, machine: Hardware = P4D, **changes: Any) -> list[str]:
    script = setup_script(cluster(image=image, **changes), machine)
    begun = [line for line in script.splitlines() if line.startswith("if gpuctl_begin ")]
    return [line.removeprefix("if gpuctl_begin ").removesuffix("; then") for line in begun]


def test_a_plain_ubuntu_gets_the_driver_before_efa_and_both_before_what_uses_them() -> None:
    assert titles("stock-ubuntu-24.04") == [
        "'host keys'",
        "limits",
        "'hold updates'",
        "'NVIDIA driver'",
        "EFA",
        "'reboot if needed'",
        "'fabric manager'",
        "NCCL",
        "'scratch disks'",
        "'Open MPI'",
        "nccl-tests",
        "verify",
    ]


def test_a_type_gets_no_more_than_it_has() -> None:
    one_gpu = Hardware("g5.4xlarge", gpus=1, sm="86", efa=0, nvswitch=False)
    assert not {"EFA", "'fabric manager'"} & set(titles("stock-ubuntu-24.04", one_gpu))
    assert "'NVIDIA driver'" not in titles("stock-ubuntu-24.04", CPU)
    for image in ("dlami-ubuntu-24.04", "dlami-al2023", "stock-debian-12"):
        assert "'NVIDIA driver'" not in titles(image)


def test_nccl_is_not_built_for_a_gpu_of_an_unknown_architecture() -> None:
    new = replace(P4D, instance_type="p9.48xlarge", sm="")
    with pytest.raises(InputError) as caught:
        titles("stock-ubuntu-24.04", new)
    assert str(caught.value) == (
        "image stock-ubuntu-24.04: gpuctl does not know the architecture of the GPU of p9.48xlarge,"
        " for which it builds NCCL; name an image that contains driver and NCCL (dlami-…, ami-…)"
    )


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("g4dn.12xlarge", Hardware("g4dn.12xlarge", 4, "75", 1, False, 1)),
        ("p4de.24xlarge", Hardware("p4de.24xlarge", 8, "80", 4, True, 8)),
        ("p5en.48xlarge", Hardware("p5en.48xlarge", 8, "90", 16, True, 8)),
        ("p6-b300.48xlarge", Hardware("p6-b300.48xlarge", 8, "103", 16, True, 8)),
        ("g7e.12xlarge", Hardware("g7e.12xlarge", 2, "120", 1, False, 1)),
    ],
)
def test_hardware_of_a_type(name: str, expected: Hardware) -> None:
    kind = instance_type(name)
    assert hardware(kind, interfaces(kind, "auto")) == expected


class Sandbox:
    """The scripts with their paths under a folder, and commands of the system's replaced."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self.bin = root / "bin"
        self.bin.mkdir()
        names = "bash cat mkdir printf touch tail grep sed sort head wc find paste ln rm make env"
        names += " dirname readlink date mktemp gpg gpgv tar gzip awk sleep sha256sum nproc"
        for name in names.split():
            if found := shutil.which(name):
                (self.bin / name).symlink_to(found)
        self.program("mpirun", "echo 'mpirun (Open MPI) 4.1.4'")
        self.program("systemctl", "[ $1 != is-active ] || echo active")
        for folder in ("etc/ssh", "etc/security/limits.d", "etc/systemd", "dev", "root", "tmp"):
            (root / folder).mkdir(parents=True)
        (root / "etc/ssh/ssh_host_ed25519_key.pub").write_text("ssh-ed25519 AAAA host\n")

    def program(self, name: str, script: str) -> None:
        (self.bin / name).unlink(missing_ok=True)
        (self.bin / name).write_text(f"#!/bin/bash\n{script}\n")
        (self.bin / name).chmod(0o755)

    def run(self, script: str) -> "subprocess.CompletedProcess[str]":
        for path in ("/var/lib", "/etc/", "/dev/console", "/opt/", "/usr/", "/root", "/run/"):
            script = script.replace(f" {path}", f" {self.root}{path}")
        for path in ("/var/lib/gpuctl", "/root/nccl-tests"):
            script = script.replace(f"={path}", f"={self.root}{path}")
        return subprocess.run(
            ["bash", "-c", script],
            env={"PATH": str(self.bin), "TMPDIR": str(self.root / "tmp")},
            capture_output=True,
            text=True,
            check=False,
        )

    def setup(self, *commands: str, **software: Any) -> "subprocess.CompletedProcess[str]":
        asked = cluster(setup={"commands": commands}, software=software)
        # What its own disks take is seen in test_storage_steps.
        return self.run(setup_script(asked, replace(P4D, local_disks=0)))

    @property
    def steps(self) -> list[str]:
        return (self.root / "var/lib/gpuctl/steps").read_text().splitlines()


@pytest.fixture
def sandbox(tmp_path: Path) -> Sandbox:
    return Sandbox(tmp_path)


def test_commands_run_in_order_in_one_shell(sandbox: Sandbox) -> None:
    done = sandbox.setup("greeting=hello", 'echo "$greeting, it\'s me"')
    assert done.returncode == 0, done.stdout + done.stderr
    assert "==> setup 2 of 2: echo \"$greeting, it's me\"\nhello, it's me\n" in done.stdout
    assert sandbox.steps == [
        "host keys",
        "limits",
        "hold updates",
        "fabric manager",
        "Open MPI",
        "nccl-tests",
        "verify",
        "setup 1 of 2: greeting=hello",
        'setup 2 of 2: echo "$greeting, it\'s me"',
        "done",
    ]


def test_systemd_reads_all_units_again_only_where_this_boot_needs_it(sandbox: Sandbox) -> None:
    """`enable` reads them too; each time costs a processor a quarter of a second in the lab."""
    sandbox.program("systemctl", "echo $* >> $PATH/../systemctl")
    for name in ("dpkg", "xargs", "lsblk", "mountpoint", "chmod"):
        sandbox.program(name, "true")
    (sandbox.root / "etc/apt/apt.conf.d").mkdir(parents=True)
    (sandbox.root / "etc/systemd/system").mkdir()
    (sandbox.root / "opt").mkdir()
    script = setup_script(cluster(), P4D).replace("\n/opt/gpuctl/", "\ntrue /opt/gpuctl/")
    done = sandbox.run(script)
    assert done.returncode == 0, done.stdout + done.stderr
    words = [line.split() for line in (sandbox.root / "systemctl").read_text().splitlines()]
    changing = {"daemon-reload", "daemon-reexec", "enable", "disable", "mask"}
    assert [w for w in words if changing & set(w) and w != ["daemon-reexec"]] == [
        ["--no-reload", "mask", "--now", *UPDATES],
        ["enable", "nvidia-fabricmanager"],
        ["--no-reload", "enable", "gpuctl-scratch.service"],
    ]


def test_a_second_boot_does_nothing(sandbox: Sandbox) -> None:
    sandbox.setup("echo once")
    steps = sandbox.steps
    done = sandbox.setup("echo once")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert sandbox.steps == steps


def test_the_first_failing_command_ends_it_and_is_named(sandbox: Sandbox) -> None:
    done = sandbox.setup("echo no such file; (exit 3)\necho not reached", "echo not either")
    assert done.returncode == 3
    assert done.stdout.endswith(
        "no such file\n"
        "gpuctl: 'setup 1 of 2: echo no such file; (exit 3)' failed with exit code 3\n"
    )
    assert "not reached" not in done.stdout
    assert "not either" not in done.stdout


def test_a_boot_after_a_failure_goes_on_where_it_failed(sandbox: Sandbox) -> None:
    flag = sandbox.root / "flag"
    commands = ("echo first", f"# the second\n[ -e {flag} ]")
    assert sandbox.setup(*commands).returncode == 1
    flag.touch()
    done = sandbox.setup(*commands)
    assert (done.returncode, done.stdout) == (0, "==> setup 2 of 2: # the second\n==> done\n")


def test_it_reboots_once_and_goes_on(sandbox: Sandbox) -> None:
    sandbox.program("systemctl", "echo $1 >> $PATH/../systemctl")
    sandbox.program("sleep", "exit 143")  # the machine goes down
    folder = sandbox.root / "var/lib/gpuctl"
    folder.mkdir(parents=True)
    (folder / "reboot").touch()
    begin, reboot = (STEPS / "begin.sh").read_text(), (STEPS / "reboot.sh").read_text()
    script = f"{begin}\nif gpuctl_begin reboot; then\n{reboot}fi\ngpuctl_begin 'done'\n"
    assert sandbox.run(script).returncode == 143
    assert sandbox.steps == ["reboot", "rebooting"]
    (folder / "reboot").touch()  # whatever asks again: it is done
    assert sandbox.run(script).returncode == 0
    assert sandbox.steps == ["reboot", "rebooting", "done"]
    assert (sandbox.root / "systemctl").read_text() == "reboot\n"


def test_host_keys_reach_the_console_before_anything_slow(sandbox: Sandbox) -> None:
    sandbox.setup("false")
    assert (sandbox.root / "dev/console").read_text() == (
        "-----BEGIN SSH HOST KEY KEYS-----\nssh-ed25519 AAAA host\n"
        "-----END SSH HOST KEY KEYS-----\n"
    )


def test_open_mpi_of_another_version_is_refused(sandbox: Sandbox) -> None:
    done = sandbox.setup(openmpi=5)
    assert done.returncode == 1
    assert "software.openmpi is 5, and this image has no such Open MPI\n" in done.stdout


STAND_INS = Path(__file__).parents[2] / "lab/images/stand_ins"
PLUGIN = "opt/amazon/ofi-nccl/lib/libnccl-net.so"


def a_library() -> str:
    """The path of libc, which can be loaded."""
    loaded = Path("/proc/self/maps").read_text().split()
    return next(word for word in loaded if "/libc.so" in word)


def checked(
    sandbox: Sandbox, faults: dict[str, object], profile: str = "", **software: Any
) -> list[str]:
    """The lines of the checks on a p4d, against the lab's stand-ins for its tools."""
    lab = sandbox.root / "lab"
    lab.mkdir(exist_ok=True)
    shown = {"gpus": 8, "gpu": "A100", "gpu_memory_mib": 40960, "nvswitch": True, "efa": 4}
    shown |= {"driver": "595.91.07", "fabricmanager": "595.91.07"}
    (lab / "instance-type.json").write_text(json.dumps(shown))
    (lab / "faults.json").write_text(json.dumps(faults))
    for name in ("nvidia-smi", "dcgmi", "fi_info", "nv-fabricmanager"):
        program = (STAND_INS / f"{name.replace('-', '_')}.py").read_text()
        (sandbox.bin / name).write_text(program.replace("/etc/gpuctl-lab", str(lab)))
        (sandbox.bin / name).chmod(0o755)
    sandbox.program("sleep", "true")
    sandbox.program("mountpoint", "true")
    sandbox.program("python3", f'exec {sys.executable} "$@"')
    test, plugin = (sandbox.root / path for path in ("root/nccl-tests/build", PLUGIN))
    test.mkdir(parents=True, exist_ok=True)
    (test / "all_reduce_perf").touch(mode=0o755)
    if not plugin.exists():
        plugin.parent.mkdir(parents=True)
        plugin.symlink_to(a_library())
    (sandbox.root / "opt/amazon/efa_installed_packages").write_text(
        "# EFA installer version: 1.50.0\nlibfabric\n"
    )
    # A login on this host would not find the stand-ins.
    script = check_script(cluster(software=software), P4D).replace(
        "bash -lc '", f"bash -c '{profile}"
    )
    done = sandbox.run(script)
    lines = done.stdout.splitlines()
    assert done.returncode == any(line.startswith("failed") for line in lines), done.stderr
    return lines


def test_words_of_a_profile_are_no_error_of_the_plugin(sandbox: Sandbox) -> None:
    profile = 'echo -n welcome; echo why >&2; trap "echo bye" EXIT; '
    assert "ok: NCCL plugin for EFA: loads" in checked(sandbox, {}, profile=profile)


def test_a_good_node_passes_every_check(sandbox: Sandbox) -> None:
    assert checked(sandbox, {}) == [
        "ok: GPUs: 8",
        "ok: GPUs that DCGM finds: 8",
        "ok: fabric manager version: 595.91.07",
        "ok: fabric manager: active",
        "ok: nccl-tests: present",
        "ok: libraries of nccl-tests: found",
        "ok: EFA devices: 4",
        "ok: NCCL plugin for EFA: loads",
        "ok: Open MPI: 4",
        "ok: /scratch: mounted",
    ]


@pytest.mark.parametrize(
    ("faults", "expected"),
    [
        (
            {"gpus": 7},
            [
                "failed: GPUs: expected 8, actual 7",
                "failed: GPUs that DCGM finds: expected 8, actual 7",
            ],
        ),
        ({"efa": 3}, ["failed: EFA devices: expected 4, actual 3"]),
        ({"efa": 0}, ["failed: EFA devices: expected 4, actual 0"]),
        (
            {"fabricmanager": "580.95.05"},
            ["failed: fabric manager version: expected 595.91.07, actual 580.95.05"],
        ),
        (
            {"gpus": None},
            [
                "failed: GPUs: expected 8, actual NVIDIA-SMI has failed because it couldn't"
                " communicate with the NVIDIA driver. Make sure that the latest NVIDIA driver is"
                " installed and running.",
                "failed: fabric manager version: expected a driver, actual 595.91.07",
            ],
        ),
    ],
)
def test_a_fault_is_told_with_what_is_expected(
    sandbox: Sandbox, faults: dict[str, object], expected: list[str]
) -> None:
    assert [line for line in checked(sandbox, faults) if line.startswith("failed")] == expected


def test_a_plugin_that_cannot_be_loaded_fails_the_check(sandbox: Sandbox) -> None:
    """NCCL loads its plugin with dlopen; without it a job would use sockets."""
    plugin = sandbox.root / PLUGIN
    plugin.parent.mkdir(parents=True)
    plugin.write_text("no library")
    assert [line for line in checked(sandbox, {}) if line.startswith("failed")] == [
        f"failed: NCCL plugin for EFA: expected loads, actual OSError: {plugin}: file too short"
    ]


LDD = """\
\tlinux-vdso.so.1 (0x00007ffd8a5f2000)
\tlibcudart.so.13 => {cudart}
\tlibnccl.so.2 => {nccl}
\tlibmpi.so.40 => not found
\tlibc.so.6 => /lib/x86_64-linux-gnu/libc.so.6 (0x00007f2c5ee00000)
"""
"""ldd(1) of all_reduce_perf; mpirun sets the path of MPI's library for the ranks."""


def test_libraries_that_a_job_would_not_find_fail_the_check(sandbox: Sandbox) -> None:
    sandbox.program("ldd", f"printf '%s' '{LDD.format(cudart='not found', nccl='not found')}'")
    assert [line for line in checked(sandbox, {}) if line.startswith("failed")] == [
        "failed: libraries of nccl-tests: expected found, actual no libcudart.so.13 libnccl.so.2"
    ]


@pytest.mark.parametrize(("at", "registered"), [("not found", True), ("/usr/lib/x (0x7f)", False)])
def test_the_images_own_libraries_are_registered_where_a_login_lacks_them(
    sandbox: Sandbox, at: str, registered: bool
) -> None:
    own = sandbox.root / "usr/local/cuda-13.0/efa/test-cuda-13.0"
    own.mkdir(parents=True)
    (own / "all_reduce_perf").touch(mode=0o755)
    (sandbox.root / "etc/ld.so.conf.d").mkdir()
    sandbox.program("ldd", f"printf '%s' '{LDD.format(cudart=at, nccl=at)}'")
    sandbox.program("ldconfig", f"echo ran > {sandbox.root}/ldconfig")
    step = (STEPS / "nccl-tests.sh").read_text().replace("bash -lc", "bash -c")
    done = sandbox.run(f"set -e\ngpuctl_nccl_tests_asked=\n{step}")
    assert done.returncode == 0, done.stdout + done.stderr
    assert (sandbox.root / "ldconfig").exists() == registered
    listed = sandbox.root / "etc/ld.so.conf.d/gpuctl-nccl-tests.conf"
    assert listed.exists() == registered
    if registered:
        cuda = own.parents[1]
        assert listed.read_text() == f"{cuda}/lib\n{cuda}/lib64\n{cuda}/efa/lib\n"


def test_a_pinned_version_is_checked(sandbox: Sandbox) -> None:
    pins: dict[str, Any] = {"driver": "580", "efa": "1.51.0", "nccl": "2.30.4-1", "openmpi": 5}
    lines = checked(sandbox, {}, **pins)
    assert [line for line in lines if line.startswith("failed")] == [
        "failed: NVIDIA driver branch: expected 580, actual 595",
        "failed: NCCL: expected libnccl.so.2.30.4, actual nothing",
        "failed: EFA installer: expected 1.51.0, actual 1.50.0",
        "failed: Open MPI: expected 5, actual 4",
    ]
