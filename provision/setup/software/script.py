"""The scripts that a node runs: its set-up, step by step, and the checks of the result.

Each step is a shell file in `steps/` without placeholders. Values that differ between clusters are
variables above the steps, so that each file can be read and linted as it runs.
"""

import re
import shlex
from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path

from config.catalogue.releases import Software, commit, version
from config.cluster.cluster_file import Cluster
from config.errors import InputError
from infra.program.user_data import FILE_SYSTEM
from provision.setup.software.gpu_hardware import Hardware

DRIVER = "580"
CUDA = "13-0"
"""AWS, "Get started with EFA and NCCL" for Ubuntu 24.04: nvidia-open-580, cuda-toolkit-13-0
(EC2 User Guide, 2026-11-20)."""

EFA = "1.49.0"
"""The newest EFA installer with a plugin that AWS tested with NCCL below: 1.20.0
(`config/catalogue/image_software.py`). 1.50.0 and 1.51.0 are newer (2026-08-21, 2026-10-22): AWS
tested the plugin of 1.50.0 with NCCL 2.31.2, whose commit gpuctl does not know, and the notes of
the plugin in 1.51.0 could not be read. 1.49.0 also ran on Ubuntu's kernel 7.0, in the Deep Learning
AMI of Ubuntu 26.04 (release notes for ARM64, 20260911)."""

EFA_KEY = "4E9091BCBB97A96B26B15E59A05480B1DD2D3CCC"
"""Fingerprint of the key that signs the EFA installer: AWS, "Get started with EFA and NCCL", step
"Install the EFA software" (EC2 User Guide, 2026-11-20). An older copy of that page has the same for
1.49.0."""

NCCL = "2.30.4-1"
NCCL_TESTS = "2.18.3"
"""Combined in AWS's guide and in awsome-distributed-ai's nccl-tests.Dockerfile, 2026-11-20.
Their commits are in `config/catalogue/releases.txt`."""

CUDA_KEYRING = "d2a6b11c096396d868758b86dab1823b25e14d70333f1dfa74da5ddaf6a06dba"
"""sha256 of cuda-keyring_1.1-1_all.deb for Ubuntu 24.04 on x86_64: Google's installer,
https://github.com/GoogleCloudPlatform/compute-gpu-installation/blob/9dd41ebea94863d887caf349f76d9ac9edc7f072/linux/cuda_installer/config.py
(NVIDIA_KEYRING_SHA256_SUMS; read 2026-11-22)."""

FSX_KEY = "9C36DD9C515F10DBC3AA835C5D5CCC3383A962E1"
"""Fingerprint of the key that signs AWS's repository of Lustre clients for Ubuntu. AWS's guide
prints none; this one is in littlemex's lustre_installer.sh (distributed-ai, commit 52fff76, read
2026-11-22), the only public source that was found."""

MOUNT = {
    "efs": "nfs4 nfsvers=4.1,rsize=1048576,wsize=1048576,hard,timeo=600,retrans=2,noresvport",
    "fsx-lustre": "lustre relatime,flock",
}
"""Type and options as AWS recommends them: EFS User Guide, "Recommended NFS mount settings"; FSx
for Lustre User Guide, "Mounting Amazon FSx file systems automatically" (2026-11-20)."""

STEPS = Path(__file__).parent / "steps"
DONE = "done"

UBUNTU = "stock-ubuntu-24.04"
DEBIAN = "stock-debian-12"

Step = tuple[str, str]
"""A step: its title, which is one line, and its shell commands."""


def setup_script(cluster: Cluster, hardware: Hardware) -> str:
    """Return the bash script that sets a node up; the user's commands are its last steps.

    Raises InputError if the image's software does not exist for the type.
    """
    packages = shlex.join(cluster.software.packages)
    steps = "\n".join(
        f"if gpuctl_begin {shlex.quote(title)}; then\n{commands.rstrip()}\nfi\n"
        for title, commands in (*_steps(cluster, hardware), *_user_steps(cluster))
    )
    values = {
        name: value
        for name, value in _setup_values(cluster, hardware).items()
        if re.search(rf"gpuctl_{name}\b", steps)
    }
    return "\n".join(
        (
            _fragment("begin"),
            _variables(values) + (f"gpuctl_packages=({packages})\n" if packages else ""),
            steps,
            f"gpuctl_begin '{DONE}'\n",
        )
    )


def check_script(cluster: Cluster, hardware: Hardware) -> str:
    """Return the bash script that checks the node and prints a line for each check."""
    return "\n".join(
        (
            "#!/bin/bash",
            _variables(_check_values(cluster, hardware)),
            _fragment("checks"),
        )
    )


def _steps(cluster: Cluster, hardware: Hardware) -> Iterator[Step]:
    """Yield the steps of this image on this type; a step comes after those that it needs."""
    yield "host keys", _fragment("host-keys")
    yield "limits", _fragment("limits")
    yield "hold updates", _fragment("hold-updates")
    if cluster.network.nodes_are_public:
        yield "public address", _fragment("public-address")
    if cluster.software.packages:
        yield "packages", _fragment("packages")
    if cluster.storage.shared is not None:
        # Before the minutes of the driver: AWS may have no client for the image's kernel.
        yield "client of shared storage", _fragment(cluster.storage.shared.type)
    if _installs(cluster, hardware):
        yield "NVIDIA driver", _fragment("nvidia")
        if hardware.efa:
            yield "EFA", _fragment("efa")
        yield "reboot if needed", _fragment("reboot")
        if hardware.nvswitch:
            yield "fabric manager", _fragment("fabricmanager") + _fragment("fabricmanager-start")
        yield "NCCL", _fragment("nccl")
    elif hardware.nvswitch and cluster.image != DEBIAN:
        yield "fabric manager", _fragment("fabricmanager-start")
    if hardware.local_disks:
        yield "scratch disks", _fragment("scratch")
    if cluster.storage.shared is not None:
        yield "shared storage", _fragment("shared")
    yield "Open MPI", _fragment("openmpi")
    yield "nccl-tests", _fragment("nccl-tests")
    yield "verify", _fragment("verify")


def _user_steps(cluster: Cluster) -> Iterator[Step]:
    commands = cluster.setup.commands
    for number, command in enumerate(commands, 1):
        yield f"setup {number} of {len(commands)}: {_title(command)}", command


def _installs(cluster: Cluster, hardware: Hardware) -> bool:
    """Return whether gpuctl installs the GPU's software: on a plain Ubuntu, for a GPU."""
    if cluster.image != UBUNTU or hardware.gpus == 0:
        return False
    if not hardware.sm:
        raise InputError(
            f"image {UBUNTU}: gpuctl does not know the architecture of the GPU of"
            f" {hardware.instance_type}, for which it builds NCCL",
            "name an image that contains driver and NCCL (dlami-…, ami-…)",
        )
    return True


def _setup_values(cluster: Cluster, hardware: Hardware) -> dict[str, str]:
    software, installs = cluster.software, _installs(cluster, hardware)
    openmpi = software.openmpi or (4 if installs else "")
    shared = cluster.storage.shared
    return {
        "driver": software.driver or DRIVER,
        "cuda": CUDA,
        "efa": software.efa or EFA,
        "efa_key": EFA_KEY,
        "cuda_keyring": CUDA_KEYRING,
        "fsx_key": FSX_KEY,
        "nccl_commit": _commit("nccl", software.nccl or NCCL) if installs else "",
        "openmpi": str(openmpi),
        "nccl_tests_commit": _commit("nccl_tests", software.nccl_tests or NCCL_TESTS),
        "nccl_tests_asked": software.nccl_tests or "",
        "sm": hardware.sm,
        "nvlink5": "yes" if hardware.nvlink5 else "",
        "scratch": cluster.storage.scratch,
        "shared": FILE_SYSTEM,
        "shared_path": shared.path if shared else "",
        "mount": MOUNT[shared.type] if shared else "",
    }


def _commit(software: Software, pin: str) -> str:
    """Return the release's commit; a cluster file with an unknown release was refused before."""
    known = commit(software, pin)
    if known is None:
        raise InputError(f"software.{software} {pin}: its commit is unknown", "add @COMMIT to it")
    return known


def _check_values(cluster: Cluster, hardware: Hardware) -> dict[str, str]:
    """Return the expected values; on an image without GPU software only Open MPI is checked."""
    software, installs = cluster.software, _installs(cluster, hardware)
    checked = cluster.image != DEBIAN
    shared = cluster.storage.shared
    mounts = [shared.path] if shared else []
    if checked and hardware.local_disks:
        mounts.insert(0, cluster.storage.scratch)
    return {
        "gpus": str(hardware.gpus if checked else 0),
        "efa_count": str(hardware.efa if checked and hardware.gpus else 0),
        "nvswitch": "yes" if hardware.nvswitch else "",
        "driver": software.driver or (DRIVER if installs else ""),
        "efa": software.efa or (EFA if installs else ""),
        "nccl": version(software.nccl or (NCCL if installs else "")),
        "openmpi": str(software.openmpi or ""),
        "mounts": " ".join(mounts),
    }


def _variables(values: Mapping[str, str]) -> str:
    return "".join(f"gpuctl_{name}={shlex.quote(value)}\n" for name, value in values.items())


@cache
def _fragment(name: str) -> str:
    return (STEPS / f"{name}.sh").read_text()


def _title(command: str) -> str:
    """Return a command's first line, shortened for a line of progress."""
    first = command.strip().partition("\n")[0]
    return first if len(first) <= 60 else f"{first[:57]}..."
