"""The files that the lab adds to a plain Debian for its machines' images."""

import re
import shutil
import subprocess
from collections.abc import Iterable
from pathlib import Path

from lab.images import container_files

_KEYRING = "/usr/share/keyrings/debian-archive-keyring.gpg"
_HOST_CERTIFICATES = Path("/usr/local/share/ca-certificates")
RELEASE = "bookworm"
"""The Debian of the machines."""

_PUBLIC_SOURCES = (
    ("http://deb.debian.org/debian/", RELEASE),
    ("http://deb.debian.org/debian/", "bookworm-updates"),
    ("http://deb.debian.org/debian-security/", "bookworm-security"),
)

_FILES = {
    # The data source is the machine's seed. Without the list, ds-identify and cloud-init search the
    # network for a metadata service. Hosts: Open MPI hangs if a machine's name does not resolve.
    # No machine has a boot loader to configure.
    "etc/cloud/cloud.cfg.d/90_lab.cfg": """\
datasource_list: [NoCloud, None]
locale: false
manage_etc_hosts: true
ssh_genkeytypes: [ed25519, ecdsa]
grub_dpkg: {enabled: false}
apt:
  preserve_sources_list: true
""",
    "etc/nsswitch.conf": """\
passwd: files systemd
group: files systemd
shadow: files
hosts: files dns
networks: files
protocols: files
services: files
ethers: files
rpc: files
""",
    # A machine powers off within seconds, even if a job's process ignores signals.
    "etc/systemd/system.conf.d/90-lab.conf": """\
[Manager]
DefaultTimeoutStopSec=10s
""",
    # networkd would wait 13 seconds for an IPv6 router before it reports host0 as configured.
    "etc/systemd/network/10-cloud-init-host0.network.d/90-lab.conf": """\
[Network]
LinkLocalAddressing=no
IPv6AcceptRA=no
""",
    "etc/apt/apt.conf.d/90lab": """\
Acquire::Languages "none";
""",
    # See lab/images/nccl_tests_cpu.c.
    "etc/gpuctl-lab/nccl-tests-cpu.conf": """\
# Bytes of one buffer at most; larger sizes are skipped with a line that says so.
max_bytes = 8388608
""",
    "etc/systemd/journald.conf.d/90-lab.conf": """\
[Journal]
Storage=volatile
""",
}

_MOUNTS = ("usr/sbin/mount.nfs4", "usr/sbin/mount.lustre")
"""Programs that mount(8) runs for types of file systems; one stand-in replaces them all."""

_STAND_INS = Path(__file__).with_name("stand_ins")
_TOOLS = {
    "nvidia_smi.py": "usr/bin/nvidia-smi",
    "dcgmi.py": "usr/bin/dcgmi",
    "fi_info.py": "opt/amazon/efa/bin/fi_info",
    "nv_fabricmanager.py": "usr/bin/nv-fabricmanager",
    "nvidia-fabricmanager.service": "lib/systemd/system/nvidia-fabricmanager.service",
    "dlami-nvme.service": "lib/systemd/system/dlami-nvme.service",
}

_SOFTWARE_FILES = {
    # More ranks than processors share the lab's host: a waiting rank must let others work.
    "etc/openmpi/openmpi-mca-params.conf": """\
mpi_yield_when_idle = 1
""",
    # What the EFA installer of the DLAMI of October 2026 leaves behind.
    "opt/amazon/efa_installed_packages": """\
# EFA installer version: 1.50.0
""",
    "opt/amazon/efa/lib/libfabric.so.1": """\
This is the lab's: there is no EFA here for libfabric to use.
""",
    **container_files.FILES,
}

_PLUGIN = ("opt/amazon/ofi-nccl/lib/libnccl-net-ofi.so", "/usr/lib/gpuctl-lab/sched_yield.so")
"""The place of NCCL's plugin for EFA, and a library of the stock image that stands in for it: the
checks of a node load it."""


def stock_parts() -> tuple[str, ...]:
    """Return all that determines a stock image in addition to its packages, for the hash."""
    certificates = (c.name + c.read_text(errors="replace") for c in _host_certificates())
    mount = (_STAND_INS / "mount_shared.py").read_text()
    return (str(_FILES), _host_sources(), _host_apt_settings(), mount, *_MOUNTS, *certificates)


def software_parts() -> tuple[str, ...]:
    """Return all that determines a dlami image in addition to stock and its packages."""
    tools = (path + (_STAND_INS / name).read_text() for name, path in _TOOLS.items())
    return (str(_SOFTWARE_FILES), *_PLUGIN, *container_files.MASKED, *tools)


def write_mmdebstrap_files(folder: Path) -> tuple[Path, Path]:
    """Write the host's Debian mirror (deb822) and apt settings as files that mmdebstrap reads."""
    sources, settings = folder / "debian.sources", folder / "apt.conf"
    sources.write_text(_host_sources())
    settings.write_text(_host_apt_settings())
    return sources, settings


def source_of(release: str) -> str:
    """Return `release` at the mirror from which the machines have theirs (deb822)."""
    return _deb822((uri, release) for uri, suite in _host_mirrors() if suite == RELEASE)


def install(root: Path) -> None:
    """Write the stock image's settings and the host's certificate authorities to `root`."""
    _write(root, _FILES)
    for name in _MOUNTS:
        shutil.copyfile(_STAND_INS / "mount_shared.py", root / name)
        (root / name).chmod(0o755)
    target = root / "usr/local/share/ca-certificates"
    target.mkdir(parents=True, exist_ok=True)
    for certificate in _host_certificates():
        shutil.copyfile(certificate, target / certificate.name)


def install_software_settings(root: Path) -> None:
    """Write the dlami image's settings and its stand-ins for tools of GPUs and EFA to `root`."""
    _write(root, _SOFTWARE_FILES)
    plugin, library = _PLUGIN
    (root / plugin).parent.mkdir(parents=True)
    (root / plugin).symlink_to(library)
    for name, path in _TOOLS.items():
        (root / path).parent.mkdir(parents=True, exist_ok=True)
        shutil.copyfile(_STAND_INS / name, root / path)
        (root / path).chmod(0o644 if path.endswith(".service") else 0o755)


def _write(root: Path, files: dict[str, str]) -> None:
    for name, text in files.items():
        (root / name).parent.mkdir(parents=True, exist_ok=True)
        (root / name).write_text(text)


def _host_certificates() -> list[Path]:
    """Return authorities that this host trusts in addition, such as that of a private mirror."""
    return sorted(_HOST_CERTIFICATES.glob("*.crt"))


def _host_sources() -> str:
    """Return the host's mirror of Debian 12 if it has one, else the public one (deb822)."""
    return _deb822(_host_mirrors())


def _host_mirrors() -> Iterable[tuple[str, str]]:
    """Return the address and the suite of each source of packages."""
    # The sources alone are asked for. With the lists of packages apt would read 60000 of them.
    options = ("--no-release-info", "--option=Dir::State::lists=/dev/null")
    form = "$(REPO_URI) $(RELEASE) $(COMPONENT)"
    shown = _apt("apt-get", "indextargets", *options, "--format", form)
    suites = {suite for _, suite in _PUBLIC_SOURCES}
    words = [line.split() for line in shown.splitlines()]
    mirrors = {(w[0], w[1]) for w in words if len(w) == 3 and w[1] in suites and w[2] == "main"}
    return sorted(mirrors) if any(suite == RELEASE for _, suite in mirrors) else _PUBLIC_SOURCES


def _deb822(sources: Iterable[tuple[str, str]]) -> str:
    return "\n".join(
        f"Types: deb\nURIs: {uri}\nSuites: {suite}\nComponents: main\nSigned-By: {_KEYRING}\n"
        for uri, suite in sources
    )


def _host_apt_settings() -> str:
    """Return the download settings of the host's apt: proxies, certificates, checks of dates."""
    kept = re.compile(r"Acquire::(https?|Check-[A-Za-z-]+|Retries)\b.*", re.IGNORECASE)
    lines = _apt("apt-config", "dump").splitlines()
    return "".join(f"{line}\n" for line in lines if kept.match(line) and '""' not in line)


def _apt(*argv: str) -> str:
    """Return the output of apt; an empty text if the host has no apt."""
    try:
        return subprocess.run(argv, capture_output=True, text=True, check=True).stdout
    except (OSError, subprocess.CalledProcessError):
        return ""
