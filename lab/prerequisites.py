"""The prerequisites of the lab on this machine, and how to install them."""

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from importlib.util import find_spec
from pathlib import Path

from config.errors import LabError
from lab.host_commands import SEARCH_PATH
from lab.machines import cgroups
from lab.network import bridge

_TOOLS = {
    "mmdebstrap": "mmdebstrap",
    "systemd-nspawn": "systemd-container",
    "ip": "iproute2",
    "nft": "nftables",
    "ssh": "openssh-client",
    "nsenter": "util-linux",
    "sysctl": "procps",
}
"""Commands that the lab runs, and the Debian packages that contain them."""

INSTALL_EXTRA = (
    "install gpuctl with its extra `lab`: uv tool install --force '.[lab]' in its checkout"
)
"""What to do where moto is missing, which the wheel without that extra does not bring."""

_KEYRING = Path("/usr/share/keyrings/debian-archive-keyring.gpg")
_OLDEST_NSPAWN = 250  # older versions were never tested
_CAPABILITIES = {"CAP_NET_ADMIN": 12, "CAP_SYS_ADMIN": 21, "CAP_MKNOD": 27}  # capability.h


@dataclass(frozen=True)
class Prerequisite:
    """A missing prerequisite: its `name`, the `problem` and a `remedy`, each of one line."""

    name: str
    problem: str
    remedy: str


def missing() -> tuple[Prerequisite, ...]:
    """Return everything that prevents the lab from starting here, without changing anything."""
    if sys.platform != "linux":
        return (Prerequisite("Linux", f"this is {sys.platform}", "use the lab on a Linux machine"),)
    return tuple(
        (*_missing_rights(), *_missing_moto(), *_missing_tools(), *_missing_surroundings())
    )


def require(work: str) -> None:
    """Raise LabError with all missing prerequisites; `work` names what they prevent."""
    if lacking := missing():
        problems = ", ".join(f"{item.name}: {item.problem}" for item in lacking)
        raise LabError(f"{work}: {problems}", "; ".join(item.remedy for item in lacking))


def _missing_rights() -> Iterator[Prerequisite]:
    if os.geteuid() != 0:
        yield Prerequisite("root", "the lab boots machines, which takes root", "run it with sudo")
        return
    mask = _effective_capabilities()
    lacking = [name for name, bit in _CAPABILITIES.items() if not mask >> bit & 1]
    if lacking:
        yield Prerequisite(
            "root", f"this root lacks {', '.join(lacking)}", "run it outside of the container"
        )


def _missing_moto() -> Iterator[Prerequisite]:
    """Yield moto, the lab's API server, if gpuctl was installed without its extra `lab`."""
    if find_spec("moto") is None:
        yield Prerequisite(
            "moto",
            "not installed",
            INSTALL_EXTRA,
        )


def _missing_tools() -> Iterator[Prerequisite]:
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=SEARCH_PATH) is None:
            yield Prerequisite(tool, "not found", f"apt-get install -y {package}")
    if not _KEYRING.exists():
        yield Prerequisite(
            "Debian's keys", f"{_KEYRING} not found", "apt-get install -y debian-archive-keyring"
        )
    version = _nspawn_version()
    if version is not None and version < _OLDEST_NSPAWN:
        yield Prerequisite(
            "systemd-nspawn",
            f"version {version}, at least {_OLDEST_NSPAWN} is needed",
            "use a host with a newer systemd, such as Debian 12",
        )


def _missing_surroundings() -> Iterator[Prerequisite]:
    if not cgroups.hierarchies():
        yield Prerequisite("cgroups", "none is mounted", "mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    if not bridge.resolvers():
        yield Prerequisite(
            "DNS",
            "the resolver listens on this machine's loopback alone, where no other can ask it",
            "put a nameserver that others can ask into /etc/resolv.conf",
        )


def _effective_capabilities() -> int:
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match[1], 16) if match else 0


def _nspawn_version() -> int | None:
    nspawn = shutil.which("systemd-nspawn", path=SEARCH_PATH)
    if nspawn is None:
        return None
    done = subprocess.run([nspawn, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"systemd (\d+)", done.stdout)
    return int(match[1]) if match else None
