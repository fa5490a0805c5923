"""Commands of the host: run, with their complaints turned into the lab's own errors."""

import os
import subprocess
from pathlib import Path

from config.errors import LabError

SEARCH_PATH = os.environ.get("PATH", os.defpath) + ":/usr/sbin:/sbin"
"""Where commands are looked for: root's own folders too, which `su` leaves out."""

ENVIRONMENT = {**os.environ, "PATH": SEARCH_PATH, "LC_ALL": "C.UTF-8"}
"""What commands of the host are run with: their messages are English."""


def call(*argv: str | Path, stdin: str | None = None, hint: str = "") -> str:
    """The command has succeeded; its standard output. LabError with its last line otherwise."""
    try:
        done = subprocess.run(
            [str(word) for word in argv],
            input=stdin,
            capture_output=True,
            text=True,
            check=False,
            env=ENVIRONMENT,
        )
    except OSError as error:
        raise LabError(
            f"cannot run {argv[0]}: {error.strerror}", hint or "see `gpuctl doctor`"
        ) from error
    if done.returncode != 0:
        said = (done.stderr.strip() or done.stdout.strip() or "it said nothing").splitlines()[-1]
        shown = " ".join(str(word) for word in argv)
        raise LabError(
            f"`{shown}` failed with exit code {done.returncode}: {said}",
            hint or "the lab needs root on Linux; see `gpuctl doctor`",
        )
    return done.stdout


def succeeds(*argv: str | Path) -> bool:
    """Whether the command exits 0; what it says is dropped."""
    done = subprocess.run(
        [str(word) for word in argv],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
        check=False,
        env=ENVIRONMENT,
    )
    return done.returncode == 0
