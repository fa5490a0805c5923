"""Releases that the nodes build from source, each with its commit: `releases.txt`.

A release that is newer than gpuctl is given with its commit, `2.31.1-1@<40 hex digits>`.
"""

from functools import cache
from pathlib import Path
from typing import Literal

Software = Literal["nccl", "nccl_tests"]

_FILE = Path(__file__).parent / "releases.txt"


def version(pin: str) -> str:
    """Return the version of `2.30.4-1` or `2.30.4-1@COMMIT`."""
    return pin.partition("@")[0]


def commit(software: Software, pin: str) -> str | None:
    """Return the full hash of the commit that `pin` means, or None for an unknown release."""
    return pin.partition("@")[2] or _commits(software).get(pin)


def newest(software: Software) -> str:
    """Return the newest release with a known commit."""
    return list(_commits(software))[-1]


@cache
def _commits(software: Software) -> dict[str, str]:
    lines = (line.split() for line in _FILE.read_text().splitlines() if not line.startswith("#"))
    return {release: commit for name, release, commit in lines if name == software}
