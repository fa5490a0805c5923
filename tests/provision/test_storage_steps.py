"""The steps that mount storage, as bash runs them: system commands are stand-ins that write down
how they were called."""

import subprocess
from pathlib import Path
from typing import Any

import pytest

from provision.aws.instance_types import read_instance_type
from provision.setup.software.script import MOUNT, STEPS, check_script, setup_script
from tests.provision.test_cloud_init import CPU, P4D, Sandbox, cluster, titles

pytestmark = pytest.mark.slow

DISK = "Amazon EC2 NVMe Instance Storage"


class Machine(Sandbox):
    """A sandbox with disks; `calls` is what was done to them."""

    def __init__(self, root: Path) -> None:
        super().__init__(root)
        (self.bin / "chmod").symlink_to("/bin/chmod")
        for name in ("mount", "mdadm", "mkfs.xfs", "blkid", "timeout", "mountpoint", "lsblk"):
            self.program(name, "exit 1")
        for name in ("mount", "mdadm", "mkfs.xfs"):
            self.program(name, f'echo "{name} $*" >> {root}/calls')

    def disks(self, count: int, formatted: str = "") -> None:
        for index in range(count):
            (self.root / f"dev/nvme{index + 1}n1").touch()
        lines = [f"{self.root}/dev/nvme{i + 1}n1 {DISK}  " for i in range(count)]
        lines.insert(0, f"{self.root}/dev/nvme0n1 Amazon Elastic Block Store      ")
        text = "\n".join(lines)
        self.program("lsblk", f"cat << 'END'\n{text}\nEND")
        self.program("blkid", f"echo {formatted}" if formatted else "exit 2")

    def scratch(self) -> "subprocess.CompletedProcess[str]":
        """What the service runs at each boot."""
        step = (STEPS / "scratch.sh").read_text()
        script = step.partition("/scratch << 'END'\n")[2].partition("\nEND\n")[0]
        return self.run(script.replace('"$1"', f'"{self.root}/scratch"'))

    @property
    def calls(self) -> list[str]:
        log = self.root / "calls"
        text = log.read_text() if log.exists() else ""
        return text.replace(f"{self.root}/dev/", "/dev/").replace(str(self.root), "").splitlines()


@pytest.fixture
def machine(tmp_path: Path) -> Machine:
    return Machine(tmp_path)


def test_several_disks_are_striped_formatted_and_mounted(machine: Machine) -> None:
    machine.disks(3)
    assert machine.scratch().returncode == 0
    assert machine.calls == [
        "mdadm --assemble --scan",
        "mdadm --create /dev/md/gpuctl --run --homehost=any --level=0 --raid-devices=3"
        " /dev/nvme1n1 /dev/nvme2n1 /dev/nvme3n1",
        "mkfs.xfs -q -f -K -L gpuctl /dev/md/gpuctl",
        "mount -o noatime /dev/md/gpuctl /scratch",
    ]


def test_one_disk_needs_no_stripes(machine: Machine) -> None:
    machine.disks(1)
    assert machine.scratch().returncode == 0
    assert machine.calls == [
        "mkfs.xfs -q -f -K -L gpuctl /dev/nvme1n1",
        "mount -o noatime /dev/nvme1n1 /scratch",
    ]


def test_a_second_boot_assembles_and_formats_nothing(machine: Machine) -> None:
    machine.disks(3, formatted="/dev/md127")
    assert machine.scratch().returncode == 0
    assert machine.calls == [
        "mdadm --assemble --scan",
        "mount -o noatime /dev/md127 /scratch",
    ]


def test_what_is_mounted_already_is_left_alone(machine: Machine) -> None:
    machine.disks(3)
    machine.program("mountpoint", "exit 0")
    assert machine.scratch().returncode == 0
    assert machine.calls == []


def test_what_a_deep_learning_ami_has_mounted_is_shown_at_the_path(machine: Machine) -> None:
    machine.disks(3)
    machine.program("mountpoint", '[ "$2" = /opt/dlami/nvme ] || [[ "$2" == */opt/dlami/nvme ]]')
    assert machine.scratch().returncode == 0
    assert machine.calls == ["mount --bind /opt/dlami/nvme /scratch"]


def test_disks_of_ebs_are_never_touched(machine: Machine) -> None:
    machine.disks(0)
    done = machine.scratch()
    assert (done.returncode, machine.calls) == (0, [])
    assert "no NVMe disk of its own is seen" in done.stdout


SHARED = ("efs", "fsx-lustre")


@pytest.mark.parametrize("kind", SHARED)
def test_the_shared_file_system_is_mounted_before_the_users_commands(kind: str) -> None:
    found = titles(
        "dlami-ubuntu-24.04",
        storage={"shared": {"type": kind}},
        setup={"commands": ("ls /shared",)},
    )
    assert found.index("'scratch disks'") < found.index("'shared storage'") < len(found) - 1
    assert "'setup 1 of 1: ls /shared'" in found
    assert "'scratch disks'" not in titles("dlami-ubuntu-24.04", CPU)


def mount_step(machine: Machine, kind: str) -> "subprocess.CompletedProcess[str]":
    machine.program("sleep", "true")
    machine.program(f"mount.{'nfs4' if kind == 'efs' else 'lustre'}", "true")
    root = machine.root
    values = f"set -e\ngpuctl_shared=fs-1:/\ngpuctl_shared_path={root}/shared\n"
    values += f"gpuctl_mount={MOUNT[kind]}\n".replace(" ", "\\ ")
    return machine.run(values + "".join((STEPS / f"{s}.sh").read_text() for s in (kind, "shared")))


@pytest.mark.parametrize("kind", SHARED)
def test_a_mount_is_tried_until_its_name_is_known_and_written_down_once(
    machine: Machine, kind: str
) -> None:
    flag = machine.root / "mounted"
    (machine.root / "etc/fstab").touch()
    tries = f"echo try >> {machine.root}/tries; [ $(wc -l < {machine.root}/tries) -ge 3 ]"
    machine.program("mount", f"{tries} && touch {flag}")
    machine.program("mountpoint", f"[ -e {flag} ]")
    for _ in range(2):
        done = mount_step(machine, kind)
        assert done.returncode == 0, done.stdout + done.stderr
    assert (machine.root / "tries").read_text() == "try\n" * 3
    options = {
        "efs": "nfs4 nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport",
        "fsx-lustre": "lustre relatime,flock",
    }[kind]
    assert (machine.root / "etc/fstab").read_text() == (
        f"fs-1:/ {machine.root}/shared {options},_netdev,nofail 0 0\n"
    )


def test_a_file_system_that_never_comes_fails_the_step(machine: Machine) -> None:
    (machine.root / "etc/fstab").touch()
    machine.program("mount", "exit 32")
    done = mount_step(machine, "efs")
    assert done.returncode == 1
    assert done.stdout.endswith("not there yet, try 60 of 60\n")


@pytest.mark.parametrize("kind", SHARED)
@pytest.mark.parametrize("image", ["dlami-ubuntu-24.04", "dlami-al2023", "stock-ubuntu-24.04"])
def test_scripts_with_storage_are_shellcheck_clean(image: str, kind: str) -> None:
    asked: dict[str, Any] = {"image": image, "storage": {"shared": {"type": kind}}}
    for script in (setup_script(cluster(**asked), P4D), check_script(cluster(**asked), P4D)):
        done = subprocess.run(
            ["shellcheck", "-"], input=script, capture_output=True, text=True, check=False
        )
        assert done.returncode == 0, done.stdout


def test_what_should_be_mounted_is_checked() -> None:
    asked = cluster(storage={"shared": {"type": "efs", "path": "/data"}})
    assert "gpuctl_mounts='/scratch /data'\n" in check_script(asked, P4D)
    assert "gpuctl_mounts=/data\n" in check_script(asked, CPU)
    assert "gpuctl_mounts=''\n" in check_script(cluster(), CPU)


@pytest.mark.parametrize(
    ("told", "disks"),
    [
        ({"NvmeSupport": "required", "Disks": [{"Count": 8, "SizeInGB": 1000}]}, 8),
        ({"NvmeSupport": "unsupported", "Disks": [{"Count": 2, "SizeInGB": 80}]}, 0),
        ({}, 0),
    ],
)
def test_disks_that_are_nvme_devices_count(told: dict[str, Any], disks: int) -> None:
    assert read_instance_type({"InstanceStorageInfo": told}).local_disks == disks  # type: ignore[typeddict-item]
