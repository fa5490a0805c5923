"""The environment of a login on this node, for example PATH to Open MPI, EFA, CUDA.

Images set it in /etc/profile.d. It is read as data, so that the run's values override those of a
profile, and not the reverse.

`${NAME}` in the variables of a run is the value that NAME has on the node. No shell reads `env` of
a run file. The rules are those of dstack's runner, which has the same for `env` of its tasks
(interpolateVariables in runner/internal/executor/env.go of dstackai/dstack@9d1d3a38, read
2026-11-26): `$${NAME}` is the text `${NAME}`, and a bare `$` means nothing.
"""

from __future__ import annotations

import os
import pwd
import re
import subprocess
from collections.abc import Mapping
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


_REFERENCE = re.compile(r"(\$+)\{([A-Za-z_][A-Za-z0-9_]*)\}")


def add_variables(environment: dict[str, str], variables: Mapping[str, str]) -> None:
    """Add the variables to the node's environment, in order, with references replaced.

    A reference sees the environment and the variables before its own. One to a variable that does
    not exist is empty, together with the colon that joined it to a list of paths.
    """
    for name, value in variables.items():
        environment[name] = _replace(value, environment) if "${" in value else value


def _replace(value: str, environment: Mapping[str, str]) -> str:
    def text(reference: re.Match[str]) -> str:
        dollars, name = reference[1], reference[2]
        kept = "$" * (len(dollars) // 2)
        return kept + (environment.get(name, "") if len(dollars) % 2 else f"{{{name}}}")

    for match in reversed(list(_REFERENCE.finditer(value))):
        begin, end, new = value[: match.start()], value[match.end() :], text(match)
        if not new and begin.endswith(":"):
            begin = begin[:-1]
        elif not new and end.startswith(":"):
            end = end[1:]
        value = begin + new + end
    return value
