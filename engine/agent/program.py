"""The agent's own file: where it is, and how another node receives it."""

from __future__ import annotations

import hashlib
import shlex
import sys
from pathlib import Path

PROGRAM = "__main__.py"
STACKS = "py-spy"
"""The program next to it that prints the stacks of Python processes, for runs with `hang`."""


def this_file() -> Path:
    """Return the agent's folder, or its zip application."""
    path = Path(sys.argv[0]).resolve()
    return path.parent if path.name == PROGRAM else path


def receive_agent(agent: str, data: bytes) -> str:
    """Return the shell command that reads the agent's archive, `data`, from stdin and unpacks it.

    It checks the archive's checksum. It unpacks, because Python stores compiled modules next to
    modules in a folder, but compiles those of an archive at each start. An agent that exists
    already is not changed.
    """
    folder, part = shlex.quote(agent), shlex.quote(agent) + ".$$"
    size, digest = len(data), hashlib.sha256(data).hexdigest()
    return (
        f"if [ -d {folder} ]; then head -c {size} > /dev/null; else"
        f" mkdir -p {shlex.quote(str(Path(agent).parent))} && head -c {size} > {part}.pyz"
        f" && {{ echo '{digest}  '{part}.pyz | sha256sum --check --status"
        f" || {{ rm -f {part}.pyz; echo 'the agent has a wrong checksum' >&2; exit 1; }}; }}"
        f" && python3 -IS -m zipfile -e {part}.pyz {part} && rm -f {part}.pyz"
        f" && {{ mv -T {part} {folder} 2> /dev/null || rm -rf {part}; }}; fi"
    )
