"""Commands in an image that is being made, and builds that leave nothing in it but their product.

Compilers and headers are far larger than what they make. They are installed into an overlay of the
image that is gone with the process, however that ends.
"""

import os
import subprocess
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from config.errors import LabError
from lab.host import SEARCH_PATH

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
"""The words before the packages that an image gets."""


@dataclass(frozen=True)
class Build:
    """An image that is being made.

    `root` is its root file system, `scratch` a folder for files that go with the build. `step`
    reports what is being done.
    """

    root: Path
    scratch: Path
    step: Callable[[str], None]


# In a mount namespace of its own. pip and what it builds look into /proc. The shell's variables are
# not exported: builds know names such as MAKE and INSTALL.
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


def made_in_scratch(root: Path, packages: tuple[str, ...], make: str, source: bytes = b"") -> bytes:
    """What the shell commands `make` wrote to stdout in a copy of `root` that has the packages.

    `source` is in its file /tmp/source. `root` stays as it was. LabError with the last complaint.
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
        said = (done.stderr.decode(errors="replace").strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"a build for the image failed: {said}", NETWORK_HINT)
    return done.stdout


_WITH_PROC = 'root=$1; shift; mount -t proc proc "$root/proc" && exec chroot "$root" "$@"'


def run_inside(root: Path, *argv: str, hint: str = NETWORK_HINT) -> None:
    """The command has succeeded in the image; LabError with its last complaint."""
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
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        raise LabError(f"`{argv[0]}` failed in the image: {said}", hint)


def _environment() -> dict[str, str]:
    """How the host reaches package indexes (proxies, pip's mirror), and none of its other ways."""
    ways = ("http_proxy", "https_proxy", "no_proxy", "pip_index_url", "pip_extra_index_url")
    kept = {name: value for name, value in os.environ.items() if name.lower() in ways}
    return {**kept, "PATH": SEARCH_PATH, "HOME": "/root", "LC_ALL": "C.UTF-8"}
