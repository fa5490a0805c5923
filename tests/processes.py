"""Whether processes of a test have ended, also those that are not its children."""

import atexit
import tempfile
import time
from pathlib import Path

ERRORS = tempfile.TemporaryFile()  # noqa: SIM115
"""The standard error of the processes that serve this worker's regions, until the worker ends."""
atexit.register(ERRORS.close)


def is_alive(pid: int) -> bool:
    """Whether it runs; one that waits for its parent, or for a process 1 that never reaps, no."""
    try:
        stat = Path(f"/proc/{pid}/stat").read_text()
    except (FileNotFoundError, ProcessLookupError):  # before it was opened, or read
        return False
    return stat.rpartition(")")[2].split()[0] != "Z"


def wait_for_end(pid: int) -> None:
    """Wait until the process has ended: a killed one does so some milliseconds later."""
    for _ in range(1200):
        if not is_alive(pid):
            return
        time.sleep(0.05)
    raise TimeoutError(f"process {pid} lives on")
