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
from lab.host_commands import search_path
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


@dataclass(frozen=True)
class Host:
    """The facts about a machine that the lab needs.

    `capabilities` are the bits of this process, `search_path` is that of commands, `keyring` the
    file with Debian's keys, `resolvers` the nameservers that machines of the lab can ask.
    """

    platform: str
    user: int
    capabilities: int
    has_moto: bool
    search_path: str
    keyring: Path
    has_cgroups: bool
    resolvers: tuple[str, ...]


def this_host() -> Host:
    """Return this machine."""
    return Host(
        platform=sys.platform,
        user=os.geteuid(),
        capabilities=_effective_capabilities(),
        has_moto=find_spec("moto") is not None,
        search_path=search_path(),
        keyring=_KEYRING,
        has_cgroups=bool(cgroups.hierarchies()),
        resolvers=bridge.resolvers(),
    )


def missing(host: Host | None = None) -> tuple[Prerequisite, ...]:
    """Return everything that prevents the lab from starting on the host, by default this one."""
    platform = sys.platform if host is None else host.platform
    if platform != "linux":
        return (Prerequisite("Linux", f"this is {platform}", "use the lab on a Linux machine"),)
    host = host or this_host()
    return (
        *_missing_rights(host),
        *_missing_moto(host),
        *_missing_tools(host),
        *_missing_surroundings(host),
    )


def require(work: str, host: Host | None = None) -> None:
    """Raise LabError with all missing prerequisites; `work` names what they prevent."""
    if lacking := missing(host):
        problems = ", ".join(f"{item.name}: {item.problem}" for item in lacking)
        raise LabError(f"{work}: {problems}", "; ".join(item.remedy for item in lacking))


def _missing_rights(host: Host) -> Iterator[Prerequisite]:
    if host.user != 0:
        yield Prerequisite("root", "the lab boots machines, which takes root", "run it with sudo")
        return
    lacking = [name for name, bit in _CAPABILITIES.items() if not host.capabilities >> bit & 1]
    if lacking:
        yield Prerequisite(
            "root", f"this root lacks {', '.join(lacking)}", "run it outside of the container"
        )


def _missing_moto(host: Host) -> Iterator[Prerequisite]:
    """Yield moto, the lab's API server, if gpuctl was installed without its extra `lab`."""
    if not host.has_moto:
        yield Prerequisite(
            "moto",
            "not installed",
            INSTALL_EXTRA,
        )


def _missing_tools(host: Host) -> Iterator[Prerequisite]:
    for tool, package in _TOOLS.items():
        if shutil.which(tool, path=host.search_path) is None:
            yield Prerequisite(tool, "not found", f"apt-get install -y {package}")
    if not host.keyring.exists():
        yield Prerequisite(
            "Debian's keys",
            f"{host.keyring} not found",
            "apt-get install -y debian-archive-keyring",
        )
    version = _nspawn_version(host.search_path)
    if version is not None and version < _OLDEST_NSPAWN:
        yield Prerequisite(
            "systemd-nspawn",
            f"version {version}, at least {_OLDEST_NSPAWN} is needed",
            "use a host with a newer systemd, such as Debian 12",
        )


def _missing_surroundings(host: Host) -> Iterator[Prerequisite]:
    if not host.has_cgroups:
        yield Prerequisite("cgroups", "none is mounted", "mount -t cgroup2 cgroup2 /sys/fs/cgroup")
    if not host.resolvers:
        yield Prerequisite(
            "DNS",
            "the resolver listens on this machine's loopback alone, where no other can ask it",
            "put a nameserver that others can ask into /etc/resolv.conf",
        )


def _effective_capabilities() -> int:
    status = Path("/proc/self/status").read_text()
    match = re.search(r"^CapEff:\s*([0-9a-f]+)$", status, re.MULTILINE)
    return int(match[1], 16) if match else 0


def _nspawn_version(search_path: str) -> int | None:
    nspawn = shutil.which("systemd-nspawn", path=search_path)
    if nspawn is None:
        return None
    done = subprocess.run([nspawn, "--version"], capture_output=True, text=True, check=False)
    match = re.match(r"systemd (\d+)", done.stdout)
    return int(match[1]) if match else None
