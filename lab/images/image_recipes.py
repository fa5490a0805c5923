"""The recipes of `stock` and `dlami`: Debian, real cloud-init, and the lab's stand-ins.

`lab.images.frameworks` has the third flavour's recipe. A recipe runs in the process that builds the
image (`lab.images.image_builder`). A hash of all that determines its result is in the image's name
(`lab.images.image`).
"""

import shutil
import subprocess
from pathlib import Path
from typing import get_args

from config.errors import LabError
from config.run.collective import Collective
from lab.host_commands import call, environment
from lab.images import container_files, image_files
from lab.images.image_scratch import INSTALL, NETWORK_HINT, Build, build_in_scratch

_STOCK_PACKAGES = "systemd-sysv,dbus,openssh-server,iproute2,python3,kmod,ca-certificates,procps"
_CLOUD_INIT_RELEASE = "trixie"
"""The release whose cloud-init the machines have (docs/develop/lab-machines.md)."""
_CLOUD_INIT_ONLY = f"""\
Package: *
Pin: release n={_CLOUD_INIT_RELEASE}
Pin-Priority: -1

Package: cloud-init
Pin: release n={_CLOUD_INIT_RELEASE}
Pin-Priority: 990
"""
"""apt's preferences (apt_preferences(5)): only cloud-init comes from the newer release."""
# crun, podman's other runtime, refuses a host with both kinds of cgroups.
_SOFTWARE_PACKAGES = ("openmpi-bin", "podman", "runc")
_COMPILER = ("gcc", "libc6-dev")
_BUILD_PACKAGES = (*_COMPILER, "libopenmpi-dev")
_UNITS_ENABLED = ("systemd-networkd.service", "ssh.service")
# A machine lives for minutes: units for long-term maintenance would only delay its boot by seconds.
_UNITS_MASKED = (
    "apt-daily.timer",
    "apt-daily-upgrade.timer",
    "console-getty.service",
    "container-getty@.service",
    "dpkg-db-backup.timer",
    "e2scrub_all.timer",
    "e2scrub_reap.service",
    "fstrim.timer",
    "getty.target",
    "systemd-hwdb-update.service",
    "systemd-pcrphase.service",
    "systemd-pcrphase-sysinit.service",
    "systemd-update-utmp.service",
    "systemd-update-utmp-runlevel.service",
)
SOURCE = Path(__file__).with_name("nccl_tests_cpu.c")
_COMPILE = "mpicc -O2 -Wall -x c -o /tmp/program /tmp/source -lm >&2 && exec cat /tmp/program"
_TESTS = Path("root/nccl-tests/build")
_YIELD_SOURCE = SOURCE.parent / "stand_ins" / "sched_yield.c"
_YIELD = Path("usr/lib/gpuctl-lab/sched_yield.so")
_COMPILE_YIELD = (
    "gcc -O2 -Wall -shared -fPIC -x c -o /tmp/library /tmp/source >&2 && exec cat /tmp/library"
)
TEST_NAMES = tuple(f"{name}_perf" for name in get_args(Collective))

_SOURCE_FOLDER = Path("usr/src/nccl-tests")
_MAKEFILE = f"""\
# As nccl-tests' own Makefile: `make MPI=1 BUILDDIR=build`.
BUILDDIR ?= build
all:
\tmkdir -p $(BUILDDIR)
\tmpicc -O2 -Wall -o $(BUILDDIR)/{TEST_NAMES[0]} {SOURCE.name} -lm
\tfor name in {" ".join(TEST_NAMES[1:])}; do \\
\t  ln -sf {TEST_NAMES[0]} $(BUILDDIR)/$$name; done
"""


def stock_parts() -> tuple[str, ...]:
    """Return all that determines a stock image."""
    packages = (
        image_files.RELEASE,
        _STOCK_PACKAGES,
        _CLOUD_INIT_ONLY,
        *_UNITS_ENABLED,
        *_UNITS_MASKED,
    )
    sources = (SOURCE.read_text(), _MAKEFILE, _YIELD_SOURCE.read_text(), _COMPILE_YIELD)
    return (*packages, *image_files.stock_parts(), *sources)


def dlami_parts() -> tuple[str, ...]:
    """Return all that determines a dlami image in addition to stock."""
    software = (*TEST_NAMES, *_SOFTWARE_PACKAGES, *_BUILD_PACKAGES)
    return (*software, *image_files.software_parts())


def make_stock(build: Build) -> None:
    """Build a plain Debian that cloud-init configures at its first boot."""
    root = build.root
    sources, apt_settings = image_files.write_mmdebstrap_files(build.scratch)
    _follow(
        build,
        "mmdebstrap",
        "--mode=root",
        "--variant=minbase",
        "--format=directory",
        f"--include={_STOCK_PACKAGES}",
        f"--aptopt={apt_settings}",
        "--dpkgopt=force-unsafe-io",
        "--dpkgopt=path-exclude=/usr/share/man/*",
        "--dpkgopt=path-exclude=/usr/share/doc/*",
        image_files.RELEASE,
        str(root),
        str(sources),
    )
    build.step("settings")
    image_files.install(root)
    source = root / _SOURCE_FOLDER
    source.mkdir(parents=True)
    shutil.copyfile(SOURCE, source / SOURCE.name)
    (source / "Makefile").write_text(_MAKEFILE)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    _install_cloud_init(build)
    _replace_sched_yield(build)
    shutil.rmtree(root / "var/lib/apt/lists")
    call("chroot", root, "update-ca-certificates")
    call("chroot", root, "systemctl", "enable", *_UNITS_ENABLED)
    call("chroot", root, "systemctl", "mask", *_UNITS_MASKED)
    _forget_identity(root)


def _install_cloud_init(build: Build) -> None:
    """Install cloud-init of the newer release; the machines' apt does not know that release."""
    apt = build.root / "etc/apt"
    source, only = apt / "sources.list.d/newer.sources", apt / "preferences.d/newer"
    build.step("installing cloud-init")
    source.write_text(image_files.source_of(_CLOUD_INIT_RELEASE))
    only.write_text(_CLOUD_INIT_ONLY)
    call("chroot", build.root, "apt-get", "-qq", "update")
    call("chroot", build.root, *INSTALL, "cloud-init", hint=NETWORK_HINT)
    source.unlink()
    only.unlink()


def _replace_sched_yield(build: Build) -> None:
    """Make programs of the image sleep instead of yielding the processor (see the source)."""
    root = build.root
    build.step("building sched_yield")
    library = build_in_scratch(root, _COMPILER, _COMPILE_YIELD, _YIELD_SOURCE.read_bytes())
    (root / _YIELD).parent.mkdir(parents=True)
    (root / _YIELD).write_bytes(library)
    (root / "etc/ld.so.preload").write_text(f"/{_YIELD}\n")


def make_dlami(build: Build) -> None:
    """Add Open MPI, podman, and the CPU stand-in for nccl-tests to a stock image."""
    root = build.root
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    build.step("installing Open MPI and podman")
    call("chroot", root, "apt-get", "-qq", "update")
    call("chroot", root, *INSTALL, *_SOFTWARE_PACKAGES)
    build.step("building the CPU stand-in for nccl-tests")
    program = build_in_scratch(root, _BUILD_PACKAGES, _COMPILE, SOURCE.read_bytes())
    tests = root / _TESTS
    tests.mkdir(parents=True)
    (tests / TEST_NAMES[0]).write_bytes(program)
    (tests / TEST_NAMES[0]).chmod(0o755)
    for name in TEST_NAMES[1:]:
        (tests / name).symlink_to(TEST_NAMES[0])
    image_files.install_software_settings(root)
    for unit in ("nvidia-fabricmanager.service", "dlami-nvme.service", container_files.UNIT):
        call("chroot", root, "systemctl", "enable", unit)
    call("chroot", root, "systemctl", "mask", *container_files.MASKED)
    call("chroot", root, "apt-get", "clean")
    shutil.rmtree(root / "var/lib/apt/lists")
    _forget_identity(root)


def _follow(build: Build, *argv: str) -> None:
    """Run the command and report its lines as steps; LabError with its last message.

    The end of the build removes its temporary files.
    """
    complaint = "it said nothing"
    with subprocess.Popen(
        argv,
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        text=True,
        env={**environment(), "TMPDIR": str(build.scratch)},
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("I: "):
                build.step(line[3:].strip().rstrip("."))
            elif line.strip():
                complaint = line.strip()
    if process.returncode != 0:
        raise LabError(
            f"{argv[0]} failed with exit code {process.returncode}: {complaint}", NETWORK_HINT
        )


def _forget_identity(root: Path) -> None:
    """Remove the files that identify a machine: each machine creates new ones when it boots."""
    for name in ("etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id"):
        (root / name).unlink(missing_ok=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")
