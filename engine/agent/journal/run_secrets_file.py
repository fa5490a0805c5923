"""What a supervisor needs to begin and to begin again: the plan.

It is in a file in memory, for the agent's user only, as long as the run goes on: the supervisor
may be killed, and its unit restarts it. The file is gone after the run, when the nodes have given
the supervisor up, and when the head was rebooted. head/secret_store.py has the values of secrets.
"""

from __future__ import annotations

import contextlib
import os
from pathlib import Path

from engine.agent.journal.clock import steady
from engine.agent.journal.memory_folder import make_memory_folder, memory_folder

LOST_SUPERVISOR_S = 120.0
"""Seconds without a supervisor after which the nodes stop their jobs."""
HOLDS_S = LOST_SUPERVISOR_S + 30.0
"""Seconds after a supervisor's end during which a run may still have processes on its nodes, and so
holds them: until they stop their jobs, and the time that this takes."""
_BOOT_ID = Path("/proc/sys/kernel/random/boot_id")


def handover_path(folder: Path) -> Path:
    """Return the path of the file for the run with this folder."""
    return memory_folder() / f"{folder.name}.json"


def secrets_path(folder: Path) -> Path:
    """Return the path of the file with the run's secrets, which is there while the run starts."""
    return memory_folder() / f"{folder.name}.secrets"


def write_handover(folder: Path, run: bytes) -> None:
    """Write the file. Raises FileExistsError if there is one already."""
    write_for_root(handover_path(folder), run)
    renew_handover(folder)


def write_for_root(path: Path, content: bytes) -> None:
    """Write a new file in memory that this user alone may read; FileExistsError if it exists."""
    make_memory_folder()
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600)
    with os.fdopen(descriptor, "wb") as file:
        file.write(content)


def remove_handover(folder: Path) -> None:
    """Remove the file and that of the secrets, if they exist."""
    handover_path(folder).unlink(missing_ok=True)
    secrets_path(folder).unlink(missing_ok=True)


def may_come_back(folder: Path) -> bool:
    """Return whether a supervisor that is gone can be started again on this machine."""
    return handover_path(folder).exists()


def holds_nodes(folder: Path) -> bool:
    """Return whether the run still has its nodes, although its supervisor may be gone.

    The file's time is that at which a supervisor last lived (`renew_handover`), in seconds since
    this machine's start: somebody may set its clock.
    """
    with contextlib.suppress(FileNotFoundError):  # removed: the run is over
        return steady() - handover_path(folder).stat().st_mtime < HOLDS_S
    return False


def renew_handover(folder: Path) -> None:
    """Set the file's time to now: the supervisor lives. Do nothing without a file."""
    with contextlib.suppress(FileNotFoundError):  # the nodes have given the supervisor up
        now = steady()
        os.utime(handover_path(folder), (now, now))


def boot_id() -> str:
    """Return the id that Linux gives each boot of this machine (random(4))."""
    return _BOOT_ID.read_text().strip()
