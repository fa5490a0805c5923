"""A cluster's lock: one command at a time changes it.

On this machine the kernel frees a dead holder's lock.

The lock of a shared cluster is an object that names its holder, and that the holder renews. It is
made by a conditional write, so that one of several commands gets it. A lock that its holder
has not renewed for `STALE_S` is stale: the holder's machine has ended, sleeps or has no network.
The next command takes it over, again by a conditional write; the former holder learns of it and
then writes nothing more.
"""

import os
import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from datetime import UTC, datetime, timedelta
from getpass import getuser
from pathlib import Path
from typing import IO, TYPE_CHECKING

from pydantic import AwareDatetime

from config import file_locks
from config.bucket import Changed
from config.command_text import command_text
from config.errors import CloudError, InputError, StateError
from config.files import disk_error, disk_errors, write_whole
from config.foreign import Malformed, parse_foreign
from config.models import Value
from config.polling import Timeouts, poll
from config.target import Target
from provision.state import shared
from provision.state.shared import LOCK_FILE, SharedFiles, cluster_folder

if TYPE_CHECKING:
    from provision.aws.objects import Objects, Stored


RENEW_S = 30.0
"""The time after which a holder renews its lock (docs/do/sharing.md)."""

STALE_S = 300.0
"""The time after which a lock that nobody renews is stale (docs/do/sharing.md)."""

_LATE_S = 3 * RENEW_S


class Lock(Value):
    """The lock's content. `machine` is the id of a state folder, `id` that of one holder."""

    id: str
    owner: str
    host: str
    machine: str
    pid: int
    command: str
    since: AwareDatetime
    renewed: AwareDatetime


class Held:
    """A lock that this process holds and renews in a thread, until `release`."""

    def __init__(self, name: str, lock: Lock, etag: str, files: SharedFiles) -> None:
        bucket = shared.objects(files.target)
        assert bucket is not None
        self._objects, self._key = bucket, shared.cluster_key(name, shared.LOCK_FILE, files.target)
        self._name, self._files = name, files
        self._lock, self._etag = lock, etag
        self._ended = threading.Event()
        self._is_lost = False
        self._renewed = lock.renewed
        self._thread = threading.Thread(target=self._renew_on, name="lock", daemon=True)
        files.lost_locks.discard(name)
        self._thread.start()

    def renew(self) -> None:
        """Renew the lock once; note if somebody else has taken it over."""
        lock = self._lock.model_copy(update={"renewed": datetime.now(UTC)})
        try:
            self._etag = self._objects.write(self._key, lock.model_dump_json(), self._etag)
            self._renewed = lock.renewed
        except Changed:
            self._is_lost = True
            self._files.lost_locks.add(self._name)

    def release(self) -> None:
        """End the renewals and remove the lock, unless somebody else has it.

        A lock that was renewed lately cannot be taken over before it is removed.
        """
        self._ended.set()
        self._thread.join()
        # Not the monotonic clock: it does not run while a machine sleeps.
        if not self._is_lost and datetime.now(UTC) - self._renewed > timedelta(seconds=_LATE_S):
            self.renew()
        if not self._is_lost:
            self._objects.remove(self._key)

    def _renew_on(self) -> None:
        while not self._ended.wait(RENEW_S) and not self._is_lost:
            with suppress(CloudError):  # the network may be back at the next renewal
                self.renew()


@contextmanager
def shared_lock(name: str, command: str, files: SharedFiles) -> Iterator[None]:
    """Hold the cluster's lock in the bucket until the block ends; do nothing without a bucket.

    The caller has the lock of this machine. Raises InputError with the holder if another command
    holds the lock.
    """
    bucket = shared.objects(files.target)
    if bucket is None:
        yield
        return
    held = acquire(name, command, bucket, files)
    try:
        yield
    finally:
        with suppress(CloudError):  # without a network the lock becomes stale
            held.release()


def is_held(name: str, target: Target, stale_s: float = STALE_S) -> bool:
    """Return whether another machine holds the cluster's lock in the bucket.

    A malformed lock, which somebody else has written, counts as held until it is stale.
    """
    bucket = shared.objects(target)
    try:
        stored = bucket.read(shared.cluster_key(name, shared.LOCK_FILE, target)) if bucket else None
        if stored is None or stored.age >= timedelta(seconds=stale_s):
            return False
        return parse_foreign(Lock, stored.text).machine != _machine(target)
    except Malformed:
        return True


def acquire(
    name: str, command: str, bucket: "Objects", files: SharedFiles, stale_s: float = STALE_S
) -> Held:
    """Return the cluster's lock; InputError with the holder if another command has it."""
    target = files.target
    key, now = shared.cluster_key(name, shared.LOCK_FILE, target), datetime.now(UTC)
    lock = Lock(
        id=uuid.uuid4().hex,
        owner=target.owner or getuser(),
        host=socket.gethostname(),
        machine=_machine(target),
        pid=os.getpid(),
        command=command,
        since=now,
        renewed=now,
    )
    seen: Stored | None = None
    while True:
        try:
            etag = bucket.write(key, lock.model_dump_json(), seen.etag if seen else None)
        except Changed:
            try:
                seen = bucket.read(key)  # None if the holder has just ended
                if seen is not None:
                    _check_free(name, seen, lock, stale_s)
            except Malformed as error:
                raise InputError(
                    f"cluster '{name}' is locked by an object that is no lock: {error}",
                    "if nobody changes the cluster, remove it:"
                    f" {command_text('aws s3 rm {}', bucket.url(key))}",
                ) from error
        else:
            return Held(name, lock, etag, files)


def _check_free(name: str, stored: "Stored", ours: Lock, stale_s: float) -> None:
    """Raise InputError if the lock's holder may be alive.

    A holder with our state folder is dead: this process has that folder's own lock.
    """
    left = timedelta(seconds=stale_s) - stored.age
    if left <= timedelta():
        return
    held = parse_foreign(Lock, stored.text)
    if held.machine == ours.machine:
        return
    who = f"`{held.command}` of {held.owner} on {held.host} (process {held.pid})"
    if stored.age < timedelta(seconds=_LATE_S):
        raise InputError(
            f"cluster '{name}' is being changed by {who} since {held.since:%H:%M:%S} UTC",
            "wait for it or end it, then repeat this command",
        )
    raise InputError(
        f"cluster '{name}' is locked by {who}, which has not renewed its lock since"
        f" {datetime.now(UTC) - stored.age:%H:%M:%S} UTC: its machine sleeps, or has ended",
        f"repeat this command in {left.total_seconds():.0f} s: it then takes the lock over",
    )


def _machine(target: Target) -> str:
    """Return the id of the target's state folder; make one if it has none.

    On a disk that cannot be written it counts for this process alone.
    """
    path, made = target.state / "machine-id", uuid.uuid4().hex
    try:
        return path.read_text()
    except FileNotFoundError:
        with suppress(StateError):  # the id then holds for this command alone
            write_whole(path, made)
            return path.read_text()
        return made


_QUESTION = Timeouts(1, 0.02)
"""How long a lock may be held that is no command's: `is_locked` of another process asks for it."""


@contextmanager
def cluster_lock(
    name: str, command: str, files: SharedFiles, *, is_removal: bool = False
) -> Iterator[None]:
    """Hold the cluster's lock for `command` until the block ends (`ClusterStore.lock`)."""
    path = cluster_folder(name, files.target) / LOCK_FILE
    tolerated: tuple[type[StateError], ...] = (StateError,) if is_removal else ()
    with disk_errors(), ExitStack() as stack:
        file = _open_existing(path) if is_removal else None
        with suppress(*tolerated):  # a removal needs no file
            file = file or _open(path)
        if file is not None:
            stack.enter_context(file)
            with suppress(*tolerated):  # the lock is held, its holder cannot be written
                _hold(file, path, name, command)
        stack.enter_context(shared_lock(name, command, files))
        yield


def _open_existing(path: Path) -> IO[str] | None:
    """Open the lock's file if there is one, also on a disk that cannot be written."""
    for mode in ("r+", "r"):
        with suppress(OSError):  # the next mode is tried
            return path.open(mode)
    return None


def _hold(file: IO[str], path: Path, name: str, command: str) -> None:
    """Lock the open file, and write who holds it."""
    try:
        is_ours = poll(lambda: file_locks.try_lock(file) or None, _QUESTION)
    except OSError as error:
        raise _no_locks(path, error) from error
    if not is_ours:
        file.seek(0)
        pid, _, what = file.read().partition(" ")
        raise InputError(
            f"cluster '{name}' is being changed by `{what or 'gpuctl'}` (process {pid or '?'})",
            "wait for it or end it, then repeat this command",
        )
    if not file.writable():
        return
    # Without the file's buffer, which would be written again when the file is closed.
    with disk_errors():
        os.ftruncate(file.fileno(), 0)
        os.write(file.fileno(), f"{os.getpid()} {command}".encode())


def is_locked(name: str, target: Target) -> bool:
    """Return whether a command is changing the cluster."""
    if is_held(name, target):
        return True
    path = cluster_folder(name, target) / LOCK_FILE
    if not path.exists():
        return False
    with path.open() as file:
        try:
            return file_locks.is_locked(file)
        except OSError as error:
            raise _no_locks(path, error) from error


def _open(path: Path) -> IO[str]:
    try:
        path.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
        return path.open("a+")
    except OSError as error:
        raise disk_error(path, error) from error


def _no_locks(path: Path, error: OSError) -> StateError:
    """Return the error for a file system without locks, such as NFS without a lock daemon."""
    return StateError(
        f"{path} cannot be locked: {error.strerror}",
        "keep gpuctl's state on a disk of this machine: set XDG_STATE_HOME",
    )
