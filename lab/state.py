"""The state of the running lab: a record and a lock, which every `gpuctl --lab` reads.

The daemon holds the lock as long as it lives. So gpuctl never mistakes a crashed daemon, or a new
process with the daemon's old process id, for a running lab.
"""

import json
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from typing import IO

from config.errors import LabError
from config.file_locks import holding_process, lock_as_process, wait_for_lock
from config.files import os_errors_as, write_whole
from lab.access_key import AccessKey
from lab.places import Places, for_root_alone, make_private, open_private

OUTSIDE = 0
"""The process id of a daemon in another PID namespace (config.file_locks.holding_process)."""


@dataclass(frozen=True)
class LabRecord:
    """A lab that is ready. `since` is an ISO 8601 time in UTC; `key` signs requests to its API."""

    pid: int
    api_url: str
    provider_address: str
    since: str
    key: AccessKey


def publish(record: LabRecord, places: Places) -> None:
    """Write the record atomically, readable by its owner alone."""
    write_whole(places.record, json.dumps(asdict(record), indent=2) + "\n")


def daemon_pid(places: Places) -> int | None:
    """Return the process id of the live daemon, ready or not; None if there is none.

    It is `OUTSIDE` if the daemon is not in this process's PID namespace.
    """
    try:
        with for_root_alone(), places.alive.open("rb") as lock:
            return holding_process(lock)
    except FileNotFoundError:
        return None


def record(places: Places) -> LabRecord | None:
    """Return the running lab's record; None if the lab is down."""
    if daemon_pid(places) is None:
        return None
    try:
        content = json.loads(places.record.read_text())
        return LabRecord(**{**content, "key": AccessKey(**content["key"])})
    except (FileNotFoundError, ValueError, TypeError, KeyError):
        return None


def hold_alive(places: Places) -> IO[str]:
    """Take the daemon's lock until the file is closed; LabError if another process has it."""
    make_private(places.runtime, places.root)
    lock = open_private(places.alive)
    try:
        lock_as_process(lock)
    except BlockingIOError:
        lock.close()
        raise LabError(
            "the lab is already running", f"stop it with `{places.command('stop')}`"
        ) from None
    return lock


@contextmanager
def changing(places: Places) -> Iterator[None]:
    """Take the lock for starting or stopping the lab; wait while another process holds it."""
    with os_errors_as(LabError, f"cannot open {places.changing}", "the lab needs root on Linux"):
        if not places.is_default:
            make_private(places.changing.parent, places.root)
        lock = open_private(places.changing)
    with lock:
        wait_for_lock(lock)
        yield
