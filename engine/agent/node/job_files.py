"""Files that a job has left: anything may be at their paths, since a job is root on its nodes."""

from __future__ import annotations

import os
import stat
from pathlib import Path

MOST = 16 * 1024 * 1024
"""Bytes of a job's file that are read; nccl-tests writes every iteration of a table."""


def read_job_file(path: Path) -> str:
    """Return the text of a regular file. Raises OSError for anything else, and for more than MOST.

    Nothing waits: a pipe would, for its writer.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_NOFOLLOW | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        if not stat.S_ISREG(os.fstat(descriptor).st_mode):
            raise OSError(f"{path} is no regular file")
        data = file.read(MOST + 1)
    if len(data) > MOST:
        raise OSError(f"{path} is too large")
    return data.decode(errors="replace")
