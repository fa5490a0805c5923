"""The images of the lab's machines: Debian with real cloud-init, made once and kept.

`stock` is a distribution's plain cloud image, and has the source of a CPU stand-in for nccl-tests
where set-up looks for source. `dlami` is what a Deep Learning AMI is to a job: it has Open MPI, in
`/root/nccl-tests/build` programs that answer to nccl-tests' names, podman, and stand-ins for the
tools of GPUs and EFA (`lab.stand_ins`). `frameworks` has what run files launch too
(`lab.frameworks`).
"""

import fcntl
import functools
import hashlib
import shutil
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Literal, get_args

from config.errors import LabError
from config.progress import Progress, Reporter
from config.run import Collective
from lab import container_files, frameworks, image_files
from lab.host import call
from lab.image_scratch import INSTALL, NETWORK_HINT, made_in_scratch
from lab.places import images

Flavour = Literal["dlami", "stock", "frameworks"]
Step = Callable[[str], None]

OF_THE_LAB: tuple[Flavour, ...] = ("dlami", "stock")
"""What every lab has; the rest is made when a cluster asks for it."""

_TAKES = {
    "dlami": "about a minute",
    "stock": "about a minute",
    "frameworks": "about six minutes and 3 GB",
}

_RELEASE = "bookworm"
_STOCK_PACKAGES = (
    "systemd-sysv,dbus,openssh-server,cloud-init,iproute2,python3,kmod,ca-certificates,procps"
)
# crun, podman's other runtime, refuses a host with both kinds of cgroups.
_SOFTWARE_PACKAGES = ("openmpi-bin", "podman", "runc")
_BUILD_PACKAGES = ("gcc", "libc6-dev", "libopenmpi-dev")
_UNITS_ENABLED = ("systemd-networkd.service", "ssh.service")
# A machine lives for minutes: what looks after it for months only costs it seconds of boot.
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
_SOURCE = Path(__file__).with_name("nccl_tests_cpu.c")
_COMPILE = "mpicc -O2 -Wall -x c -o /tmp/program /tmp/source -lm >&2 && exec cat /tmp/program"
_TESTS = Path("root/nccl-tests/build")
_TEST_NAMES = tuple(f"{name}_perf" for name in get_args(Collective))

_SOURCE_FOLDER = Path("usr/src/nccl-tests")
_MAKEFILE = f"""\
# As nccl-tests' own Makefile: `make MPI=1 BUILDDIR=build`.
BUILDDIR ?= build
all:
\tmkdir -p $(BUILDDIR)
\tmpicc -O2 -Wall -o $(BUILDDIR)/{_TEST_NAMES[0]} {_SOURCE.name} -lm
\tfor name in {" ".join(_TEST_NAMES[1:])}; do \\
\t  ln -sf {_TEST_NAMES[0]} $(BUILDDIR)/$$name; done
"""


def ensure_image(flavour: Flavour, report: Reporter) -> Path:
    """The root file system of the flavour, built when it is not in the cache; whole or not at all.

    Progress has stage `image`, subject the flavour. LabError when it cannot be built. Images of
    former recipes are gone after a build.
    """
    path = image_path(flavour)
    if path.is_dir():
        return path
    with _alone():
        if path.is_dir():  # another process built it while we waited
            return path
        started = time.monotonic()

        def step(detail: str) -> None:
            report(Progress("image", flavour, "running", detail))

        report(Progress("image", flavour, "start", f"{_TAKES[flavour]}, kept for the next time"))
        try:
            _build(flavour, path, step)
        except LabError:
            report(Progress("image", flavour, "failed"))
            raise
        seconds = time.monotonic() - started
        report(Progress("image", flavour, "done", str(path), seconds))
    return path


def interrupted() -> tuple[Path, ...]:
    """What builds that did not end left in the cache; nothing while one is at work."""
    if not images().is_dir():
        return ()
    try:
        with _alone(wait=False):
            return tuple(images().glob("partial-*"))
    except BlockingIOError:
        return ()


@functools.cache
def image_path(flavour: Flavour) -> Path:
    """Where the image of this process's recipe is, or will be."""
    digest = hashlib.sha256()
    for part in _recipe(flavour):
        digest.update(part.encode() + b"\0")
    return images() / f"{flavour}-{digest.hexdigest()[:12]}"


def _recipe(flavour: Flavour) -> tuple[str, ...]:
    stock = (_RELEASE, _STOCK_PACKAGES, *_UNITS_ENABLED, *_UNITS_MASKED, *image_files.stock_parts())
    stock = (*stock, _SOURCE.read_text(), _MAKEFILE)
    if flavour == "stock":
        return stock
    software = (*_TEST_NAMES, *_SOFTWARE_PACKAGES, *_BUILD_PACKAGES)
    dlami = (*stock, *software, *image_files.software_parts())
    return dlami if flavour == "dlami" else (*dlami, *frameworks.parts())


def _build(flavour: Flavour, path: Path, step: Step) -> None:
    for left in images().glob("partial-*"):
        shutil.rmtree(left)
    partial = images() / f"partial-{path.name}"
    try:
        if flavour == "stock":
            _bootstrap(partial, step)
        elif flavour == "dlami":
            _add_software(partial, step)
        else:
            _copy("dlami", partial, step)
            frameworks.install(partial, step)
        partial.rename(path)
    except BaseException:
        shutil.rmtree(partial, ignore_errors=True)
        raise
    _remove_former(flavour, path)


def _bootstrap(root: Path, step: Step) -> None:
    """A plain Debian that cloud-init will make its own."""
    with image_files.for_mmdebstrap() as (sources, apt_settings):
        _follow(
            step,
            "mmdebstrap",
            "--mode=root",
            "--variant=minbase",
            "--format=directory",
            f"--include={_STOCK_PACKAGES}",
            f"--aptopt={apt_settings}",
            "--dpkgopt=force-unsafe-io",
            "--dpkgopt=path-exclude=/usr/share/man/*",
            "--dpkgopt=path-exclude=/usr/share/doc/*",
            _RELEASE,
            str(root),
            str(sources),
        )
    step("settings")
    image_files.install(root)
    source = root / _SOURCE_FOLDER
    source.mkdir(parents=True)
    shutil.copyfile(_SOURCE, source / _SOURCE.name)
    (source / "Makefile").write_text(_MAKEFILE)
    call("chroot", root, "update-ca-certificates")
    call("chroot", root, "systemctl", "enable", *_UNITS_ENABLED)
    call("chroot", root, "systemctl", "mask", *_UNITS_MASKED)
    _forget_identity(root)


def _add_software(root: Path, step: Step) -> None:
    """The stock image, Open MPI, podman, and the CPU stand-in for nccl-tests."""
    _copy("stock", root, step)
    shutil.copyfile("/etc/resolv.conf", root / "etc/resolv.conf")
    step("installing Open MPI and podman")
    call("chroot", root, "apt-get", "-qq", "update")
    call("chroot", root, *INSTALL, *_SOFTWARE_PACKAGES)
    step("building the CPU stand-in for nccl-tests")
    program = made_in_scratch(root, _BUILD_PACKAGES, _COMPILE, _SOURCE.read_bytes())
    tests = root / _TESTS
    tests.mkdir(parents=True)
    (tests / _TEST_NAMES[0]).write_bytes(program)
    (tests / _TEST_NAMES[0]).chmod(0o755)
    for name in _TEST_NAMES[1:]:
        (tests / name).symlink_to(_TEST_NAMES[0])
    image_files.install_software_settings(root)
    for unit in ("nvidia-fabricmanager.service", "dlami-nvme.service", container_files.UNIT):
        call("chroot", root, "systemctl", "enable", unit)
    call("chroot", root, "systemctl", "mask", *container_files.MASKED)
    call("chroot", root, "apt-get", "clean")
    shutil.rmtree(root / "var/lib/apt/lists")
    _forget_identity(root)


def _copy(flavour: Flavour, root: Path, step: Step) -> None:
    """The image of the flavour is in `root` too; it is built when it is not in the cache."""
    image = image_path(flavour)
    if not image.is_dir():
        _build(flavour, image, step)
    step(f"copying the image {flavour}")
    call("cp", "--archive", "--reflink=auto", image, root)


def _follow(step: Step, *argv: str) -> None:
    """The command has succeeded; its lines were steps. LabError with its last complaint."""
    complaint = "it said nothing"
    with subprocess.Popen(
        argv, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True
    ) as process:
        assert process.stderr is not None
        for line in process.stderr:
            if line.startswith("I: "):
                step(line[3:].strip().rstrip("."))
            elif line.strip():
                complaint = line.strip()
    if process.returncode != 0:
        raise LabError(
            f"{argv[0]} failed with exit code {process.returncode}: {complaint}", NETWORK_HINT
        )


def _forget_identity(root: Path) -> None:
    """No two machines share an identity: each makes its own when it boots."""
    for name in ("etc/hostname", "etc/resolv.conf", "var/lib/dbus/machine-id"):
        (root / name).unlink(missing_ok=True)
    for key in (root / "etc/ssh").glob("ssh_host_*"):
        key.unlink()
    (root / "etc/machine-id").write_text("")


def _remove_former(flavour: Flavour, path: Path) -> None:
    mounts = Path("/proc/self/mounts").read_text()
    for former in images().glob(f"{flavour}-*"):
        if former != path and str(former) not in mounts:
            shutil.rmtree(former)


@contextmanager
def _alone(wait: bool = True) -> Iterator[None]:
    """One build at a time, over all processes; BlockingIOError where `wait` is not wanted."""
    images().mkdir(parents=True, exist_ok=True, mode=0o700)
    with (images() / "lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX | (0 if wait else fcntl.LOCK_NB))
        yield
