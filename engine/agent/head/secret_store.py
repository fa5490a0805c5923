"""The values of a run's secrets on the head: from `start` to its supervisor, and to the next one.

`start` writes them to a file in memory (/run, a tmpfs), for root only. The supervisor gives systemd
a copy in a memory file without a name, and removes the file. If the supervisor is killed, systemd
starts it again with that copy (https://systemd.io/FILE_DESCRIPTOR_STORE/, 2026-11-26), which goes
with the unit. A job of another run is root on the head too: it finds no file, but it can read the
memory of the supervisor, as root can read everything of a machine.
"""

from __future__ import annotations

import os
import select
import socket
from pathlib import Path

from engine.agent.journal.run_secrets_file import secrets_path, write_for_root

PROPERTY = "FileDescriptorStoreMax=1"
"""The property of the supervisor's unit that lets systemd keep the copy."""
_NAME = "gpuctl-secrets"
_FIRST_PASSED = 3  # SD_LISTEN_FDS_START of sd_listen_fds(3)
_STORED_S = 5.0


def write_secrets(folder: Path, secrets: bytes) -> None:
    """Write the file for the first supervisor. Raises FileExistsError if there is one already."""
    write_for_root(secrets_path(folder), secrets)


def take_secrets(folder: Path) -> bytes:
    """Return the secrets, and remove the file once systemd has a copy for the next supervisor.

    Without systemd the file stays until the run's end. Raises FileNotFoundError if
    nobody has them.
    """
    kept = _passed_by_systemd()
    if kept is not None:
        return kept
    secrets = secrets_path(folder).read_bytes()
    if _store_in_systemd(secrets):
        secrets_path(folder).unlink()
    return secrets


def _passed_by_systemd() -> bytes | None:
    """Return the copy that systemd passed to this process, if any: sd_listen_fds(3)."""
    names = os.environ.get("LISTEN_FDNAMES", "").split(":")
    if os.environ.get("LISTEN_PID") != str(os.getpid()) or _NAME not in names:
        return None
    descriptor = _FIRST_PASSED + names.index(_NAME)
    try:
        return os.pread(descriptor, os.fstat(descriptor).st_size, 0)
    finally:
        os.close(descriptor)  # systemd keeps its own


def _store_in_systemd(secrets: bytes) -> bool:
    """Give systemd a copy; return whether it has taken it: sd_notify(3)."""
    address = os.environ.get("NOTIFY_SOCKET")
    if not address:
        return False
    copy = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    taken, held = os.pipe()
    try:
        os.write(copy, secrets)
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as connection:
            connection.connect(address.replace("@", "\0", 1))
            socket.send_fds(connection, [f"FDSTORE=1\nFDNAME={_NAME}".encode()], [copy])
            # systemd closes this one after the messages before it: only then is the copy kept.
            socket.send_fds(connection, [b"BARRIER=1"], [held])
        os.close(held)
        held = -1
        waiting = select.poll()
        waiting.register(taken, 0)  # POLLHUP is always reported
        return bool(waiting.poll(_STORED_S * 1000))
    except OSError:  # it does not listen: the file stays
        return False
    finally:
        for descriptor in (copy, taken, held):
            if descriptor >= 0:
                os.close(descriptor)
