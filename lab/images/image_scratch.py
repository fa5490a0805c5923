"""Commands in an image during its build, and compilations that add only their product to it.

Compilers and headers are far larger than their product. The lab installs them into an overlay of
the image, which the kernel removes when the process ends, in whatever way.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from config.errors import LabError
from lab.host_commands import search_path

NETWORK_HINT = "check that this machine reaches its Debian mirror: `apt-get update`"

INSTALL = (
    "env",
    "DEBIAN_FRONTEND=noninteractive",
    "apt-get",
    "-qq",
    "install",
    "--yes",
    "--no-install-recommends",
    "-o=Dpkg::Options::=--force-unsafe-io",
)
"""The command that installs packages into an image, without the packages."""


@dataclass(frozen=True)
class Build:
    """An image that is being built.

    `root` is its root file system, `scratch` a folder for files that the end of the build removes.
    `step` reports the current step.
    """

    root: Path
    scratch: Path
    step: Callable[[str], None]


# Runs in a separate mount namespace. pip and the builds that it runs read /proc. The shell's
# variables are not exported, because builds use names such as MAKE and INSTALL.
_SCRATCH = """
set -e
scratch=$1 lower=$2 make=$3
shift 3
mount -t tmpfs tmpfs "$scratch"
mkdir "$scratch/upper" "$scratch/work" "$scratch/root"
mount -t overlay overlay "$scratch/root" \
    -o "lowerdir=$lower,upperdir=$scratch/upper,workdir=$scratch/work"
mount -t proc proc "$scratch/root/proc"
chroot "$scratch/root" "$@" >&2
cat > "$scratch/root/tmp/source"
exec chroot "$scratch/root" sh -c "$make"
"""


def build_in_scratch(
    root: Path, packages: tuple[str, ...], make: str, source: bytes = b""
) -> bytes:
    """Run the shell commands `make` in a copy of `root` with the packages; return their stdout.

    The copy has `source` in the file /tmp/source. `root` does not change. If a command fails, raise
    LabError with its last message.
    """
    words = (str(root / "mnt"), str(root), make, *INSTALL, *packages)
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _SCRATCH, "sh", *words],
        input=source,
        capture_output=True,
        check=False,
        env=_environment(),
    )
    if done.returncode != 0:
        last = (done.stderr.decode(errors="replace").strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"a build for the image failed: {last}", NETWORK_HINT)
    return done.stdout


_WITH_PROC = 'root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" "$@"'


def run_inside(root: Path, *argv: str, hint: str = NETWORK_HINT) -> None:
    """Run the command in the image; LabError with its last message if it fails."""
    done = subprocess.run(
        ["unshare", "--mount", "sh", "-c", _WITH_PROC, "sh", str(root), *argv],
        stdin=subprocess.DEVNULL,
        capture_output=True,
        text=True,
        errors="replace",
        check=False,
        env=_environment(),
    )
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"`{argv[0]}` failed in the image: {last}", hint)


def _environment() -> dict[str, str]:
    """Return the host's settings for package indexes (proxies, pip's mirror), and no others."""
    names = ("http_proxy", "https_proxy", "no_proxy", "pip_index_url", "pip_extra_index_url")
    kept = {name: value for name, value in os.environ.items() if name.lower() in names}
    return {**kept, "PATH": search_path(), "HOME": "/root", "LC_ALL": "C.UTF-8"}
