"""Commands of the host, whose failures become LabErrors."""

import os
import subprocess
from pathlib import Path

from config.errors import LabError


def search_path() -> str:
    """Return the search path for commands, with root's folders, which `su` leaves out."""
    return os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"


def environment() -> dict[str, str]:
    """Return the environment of the host's commands: their messages are in English.

    Some of them run an image's Python, so this process's settings of Python are left out. With
    PYTHONPYCACHEPREFIX, Debian's packages would put their compiled modules where no machine finds
    them, and each boot would compile cloud-init again.
    """
    own = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    return {**own, "PATH": search_path(), "LC_ALL": "C.UTF-8"}


def call(*argv: str | Path, stdin: str | None = None, hint: str = "") -> str:
    """Run the command and return its standard output; LabError with its last line if it fails."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=environment(),
        )
    except OSError as error:
        raise LabError(
            f"cannot run {argv[0]}: {error.strerror}", hint or "see `gpuctl doctor`"
        ) from error
    if done.returncode != 0:
        last = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        command = " ".join(str(word) for word in argv)
        raise LabError(
            f"`{command}` failed with exit code {done.returncode}: {last}",
            hint or "the lab needs root on Linux; see `gpuctl doctor`",
        )
    return done.stdout


def succeeds(*argv: str | Path) -> bool:
    """Return whether the command exits with 0; discard its output."""
    done = subprocess.run(
        [str(word) for word in argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        env=environment(),
    )
    return done.returncode == 0


def is_mounted(at: Path) -> bool:
    """Return whether something is mounted at `at`.

    Path.is_mount does not see a folder that is mounted from the same file system.
    """
    mounts = Path("/proc/self/mountinfo").read_text().splitlines()
    return str(at) in {line.split()[4] for line in mounts}
