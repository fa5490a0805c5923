"""The environment of a login on this node, for example PATH to Open MPI, EFA, CUDA.

Images set it in /etc/profile.d. It is read as data, so that the run's values override those of a
profile, and not the reverse.
"""

from __future__ import annotations

import os
import pwd
import subprocess
from pathlib import Path

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_ONE_SHELL = {"_", "SHLVL", "PWD", "OLDPWD"}  # of the shell that printed them, not of the login


def login_environment() -> dict[str, str]:
    """Return the variables of a login shell; if the profile fails, those of a plain system."""
    user = pwd.getpwuid(os.getuid())
    plain = {
        "HOME": str(Path.home()),  # of whoever started the agent, else the user's
        "USER": user.pw_name,
        "LOGNAME": user.pw_name,
        "SHELL": "/bin/bash",
        "PATH": _PATH,
        "LANG": "C.UTF-8",
    }
    try:
        # The NUL separates env's output from anything that a profile prints.
        answer = subprocess.run(
            ["bash", "-lc", "printf '\\0'; exec env -0"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            env=plain,
            timeout=20,
            check=True,
        ).stdout
    except (OSError, subprocess.SubprocessError):
        return plain
    pairs = answer.partition(b"\0")[2].rstrip(b"\0").split(b"\0")
    for name, _, value in (pair.partition(b"=") for pair in pairs):
        if name and os.fsdecode(name) not in _ONE_SHELL:
            plain[os.fsdecode(name)] = os.fsdecode(value)
    return plain
