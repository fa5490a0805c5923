"""What the running lab says about itself: one file, one lock, read by every `gpuctl --lab`.

The daemon holds the lock for as long as it lives, so a crashed daemon, or a number that another
process got since, is never taken for a running lab.
"""

import fcntl
import json
import os
import struct
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import IO

from config.errors import LabError
from lab.places import RUNTIME

RECORD = RUNTIME / "lab.json"
LOG = RUNTIME / "daemon.log"
CAPACITY = RUNTIME / "capacity.json"
"""How many instances fit, per zone and type: `lab.api.region.Capacity`."""

FAULTS = RUNTIME / "faults.json"
"""What the lab is told to refuse: `lab.api.faults`."""

_ALIVE = RUNTIME / "daemon.lock"
_FLOCK = "hhqqi"  # struct flock of 64-bit Linux: type, whence, start, length, pid
_CHANGING = Path("/run/gpuctl-lab.lock")  # outside RUNTIME, which goes with the lab


@dataclass(frozen=True)
class Record:
    """A lab that is ready. `since` is an ISO 8601 time in UTC."""

    pid: int
    api_url: str
    provider_address: str
    since: str


def publish(record: Record) -> None:
    """The record is there, whole."""
    temporary = RECORD.with_suffix(".tmp")
    temporary.write_text(json.dumps(asdict(record), indent=2) + "\n")
    temporary.replace(RECORD)


def daemon_pid() -> int | None:
    """The living daemon's process id, ready or not; None when there is none."""
    question = struct.pack(_FLOCK, fcntl.F_WRLCK, os.SEEK_SET, 0, 0, 0)
    try:
        with _ALIVE.open("rb") as lock:
            # Asks who holds the lock without taking it, which could keep a daemon from starting.
            answer = fcntl.fcntl(lock, fcntl.F_GETLK, question)
    except FileNotFoundError:
        return None
    kind, _, _, _, pid = struct.unpack(_FLOCK, answer)
    return None if kind == fcntl.F_UNLCK else int(pid)


def record() -> Record | None:
    """The lab that is up, None when none is."""
    if daemon_pid() is None:
        return None
    try:
        return Record(**json.loads(RECORD.read_text()))
    except (FileNotFoundError, ValueError, TypeError):
        return None


def hold_alive() -> IO[str]:
    """The calling process is the daemon until the file is closed; LabError when another is."""
    RUNTIME.mkdir(parents=True, exist_ok=True)
    lock = _ALIVE.open("w")
    try:
        fcntl.lockf(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        lock.close()
        raise LabError("a lab is already running", "stop it with `gpuctl lab stop`") from None
    return lock


@contextmanager
def changing() -> Iterator[None]:
    """Only this process starts or stops the lab; others wait for their turn."""
    try:
        lock = _CHANGING.open("a")
    except OSError as error:
        raise LabError(
            f"cannot open {_CHANGING}: {error.strerror}", "the lab needs root on Linux"
        ) from None
    with lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        yield
