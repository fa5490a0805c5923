"""The supervisor's socket and its clients: follow, stop, acknowledge.

It is a Unix socket in the run's folder. A follower notices the end of the supervisor, for whatever
reason, by the end of file, so that it does not have to poll.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import socket
import sys
import time
from pathlib import Path

from engine.agent.journal.journal_file import JOURNAL, JournalReader, kind_of
from engine.agent.journal.run_folders import READ, mark_used
from engine.agent.journal.run_secrets_file import LOST_SUPERVISOR_S, boot_id, may_come_back
from engine.contract.event import to_line

SOCKET = "supervisor.sock"
CALL_S = 20.0
"""Seconds to wait for a supervisor that was killed: it is back within 10 s."""
_PAUSE_S = 0.2


def call(folder: Path, word: str) -> int:
    """Send `word` to the supervisor; return 1 if there is none.

    Words are `stop`, `stop SECONDS` with notice, `ack` and `healed ADDRESSES`.

    Wait for a supervisor that was killed and may come back.
    """
    deadline = time.monotonic() + CALL_S
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / SOCKET))
            connection.sendall(word.encode() + b"\n")
            if connection.recv(16):
                return 0
        if not may_come_back(folder) or time.monotonic() > deadline:
            return 1
        time.sleep(_PAUSE_S)


def follow(folder: Path, offset: str, lost_s: float = LOST_SUPERVISOR_S) -> int:
    """Copy the journal from byte `offset` to stdout until the run ends; return 0.

    Wait `lost_s` for a supervisor that was killed and may come back. At the end, mark the run as
    read. If the supervisor ended before the run, or never ran, the last line is `supervisor_lost`.
    If the client leaves before, end this process with 1.
    """
    path = folder / JOURNAL
    try:
        with contextlib.closing(JournalReader(path, int(offset))) as journal:
            last = _copy(journal, folder, lost_s)
    except _ClientLeftError:  # it has not read the end
        os._exit(1)  # without a flush: nobody reads it
    if not kind_of(last, "run_finished"):
        # Most of the contract, for a run that was lost.
        from engine.contract.head_events import SupervisorLost  # noqa: PLC0415

        lost = SupervisorLost(_reboot(path), time=round(time.time(), 3))
        sys.stdout.write(to_line(lost) + "\n")
    sys.stdout.flush()
    with contextlib.suppress(OSError):  # the disk is full, or the run does not exist
        (folder / READ).touch()
    mark_used(folder)
    return 0


def _reboot(journal: Path) -> str:
    """Return the sentence about a reboot of the head since the run's beginning; empty if none."""
    try:
        with journal.open("rb") as lines:
            then, now = json.loads(next(lines))["boot_id"], boot_id()
    except (OSError, ValueError, KeyError, StopIteration):  # the run never began
        return ""
    if then == now:
        return ""
    return f"the head was rebooted (boot {now[:8]} differs from {then[:8]}, in which it began)"


def _copy(journal: JournalReader, folder: Path, lost_s: float) -> bytes:
    """Copy the growing journal to stdout until the run ends or has no supervisor any more.

    Return its last line.
    """
    last = b""
    deadline = time.monotonic() + lost_s
    while True:
        with contextlib.suppress(OSError), socket.socket(socket.AF_UNIX) as connection:
            connection.connect(str(folder / SOCKET))
            connection.sendall(b"follow\n")
            while _wait_for_more(connection):
                last = _copy_new(journal, last)
                deadline = time.monotonic() + lost_s
        last = _copy_new(journal, last)
        is_over = kind_of(last, "run_finished", "powering_off")
        if is_over or not may_come_back(folder) or time.monotonic() > deadline:
            return last
        time.sleep(_PAUSE_S)


class _ClientLeftError(Exception):
    """Nobody reads stdout any more."""


def _wait_for_more(connection: socket.socket) -> bool:
    """Wait until the journal has more; return False at the supervisor's end.

    Raises _ClientLeftError. A run may be quiet for hours, and nothing is written meanwhile. So
    stdout is watched too: sshd closes it when the client has vanished.
    """
    poll = select.poll()
    poll.register(connection, select.POLLIN)
    poll.register(1, 0)  # reports only that nobody reads it
    if any(descriptor == 1 for descriptor, _ in poll.poll()):
        raise _ClientLeftError
    return bool(connection.recv(4096))


def _copy_new(journal: JournalReader, last: bytes) -> bytes:
    """Copy new lines to stdout; return the last line, but not one about a notification."""
    for line in journal.read():
        if not kind_of(line, "notified", "notifications_ended"):  # they may follow the run's end
            last = line
        _write(line)
    _write(b"")
    return last


def _write(line: bytes) -> None:
    """Write the line to stdout, or what is left of earlier ones. Raises _ClientLeftError."""
    try:
        sys.stdout.buffer.write(line) if line else sys.stdout.buffer.flush()
    except OSError:
        raise _ClientLeftError from None
